-- Sets the locks again on a node that lost some, after a quorum confirmed that the holder still has them: all or none.
--
-- KEYS[1] gone mark       ARGV[1] holder
-- then the lock of every  ARGV[2] TTL of the locks, ms
-- name, then the fence    ARGV[3] token of the lease: the counters are kept at it or above
-- counter of every name   ARGV[4] least TTL of the counters, ms; 0: they never expire
--
-- Replies  1                         the holder has the locks here
--          {0, holder, pttl, which}  refused: who holds which of the names, and what is left of that in ms
--          {-1}                      refused: this holder has withdrawn, the call is late

local names = (#KEYS - 1) / 2
local seen = redis.call('MGET', KEYS[1], unpack(KEYS, names + 2))
if seen[1] then
  return {-1}
end
for i = 2, names + 1 do
  local holder = redis.call('GET', KEYS[i])
  if holder and holder ~= ARGV[1] then
    return {0, holder, redis.call('PTTL', KEYS[i]), i - 2}
  end
end
for i = 2, names + 1 do
  redis.call('SET', KEYS[i], ARGV[1], 'NX', 'PX', ARGV[2])
  local counter = names + i
  keep(KEYS[counter], math.max(tonumber(seen[i]) or 0, tonumber(ARGV[3])), tonumber(ARGV[4]))
end
return 1
