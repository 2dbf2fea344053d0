-- Gives the locks their TTL again, if the holder still has all of them. Never shortens: a short extension that comes
-- after a longer one, whose answer was lost, must not end a lock before the holder stops trusting it.
--
-- KEYS the lock of every  ARGV[1] holder
-- name, then the fence    ARGV[2] TTL of the locks, ms
-- counter of every name   ARGV[3] token of the lease: the counters are kept at it or above
--                         ARGV[4] least TTL of the counters, ms; 0: they never expire
--
-- Replies  1                         extended
--          {0, holder, pttl, which}  refused: a lock is lost; of which name, who holds it ('': nobody), and what is left in ms

local names = #KEYS / 2
local short = {}
for i = 1, names do
  local holder = redis.call('GET', KEYS[i])
  local left = redis.call('PTTL', KEYS[i]) -- -1: no expiry, which nobody of ours sets
  if holder ~= ARGV[1] then
    return {0, holder or '', left, i - 1}
  end
  if left < tonumber(ARGV[2]) then
    short[#short + 1] = KEYS[i]
  end
end
for _, lock in ipairs(short) do
  redis.call('PEXPIRE', lock, ARGV[2])
end
for i, counter in ipairs(redis.call('MGET', unpack(KEYS, names + 1))) do
  keep(KEYS[names + i], math.max(tonumber(counter) or 0, tonumber(ARGV[3])), tonumber(ARGV[4]))
end
return 1
