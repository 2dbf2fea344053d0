-- Gives the lock its TTL again, if the holder still has it. Never shortens: a short extension that comes after a
-- longer one, whose answer was lost, must not end the lock before the holder stops trusting it.
--
-- KEYS[1] lock            ARGV[1] holder
-- KEYS[2] fence counter   ARGV[2] TTL of the lock, ms
--                         ARGV[3] token of the lease: the counter is kept at it or above
--                         ARGV[4] least TTL of the counter, ms; 0: it never expires
--
-- Replies  1                   extended
--          {0, holder, pttl}   refused: the lock is lost; who holds ('': nobody), and what is left in ms

local holder = redis.call('GET', KEYS[1])
local left = redis.call('PTTL', KEYS[1]) -- -1: no expiry, which nobody of ours sets
if holder ~= ARGV[1] then
  return {0, holder or '', left}
end
if left < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
local number = tonumber(redis.call('MGET', KEYS[2])[1]) or 0
keep(KEYS[2], math.max(number, tonumber(ARGV[3])), tonumber(ARGV[4]))
return 1
