-- Sets the lock again on a node that lost it, after a quorum confirmed that the holder still has it.
--
-- KEYS[1] lock            ARGV[1] holder
-- KEYS[2] fence counter   ARGV[2] TTL of the lock, ms
-- KEYS[3] gone mark       ARGV[3] token of the lease: the counter is kept at it or above
--                         ARGV[4] least TTL of the counter, ms; 0: it never expires
--
-- Replies  1                   the holder has the lock here
--          {0, holder, pttl}   refused: who holds, and what is left in ms
--          {-1}                refused: this holder has withdrawn, the call is late

local seen = redis.call('MGET', KEYS[2], KEYS[3])
if seen[2] then
  return {-1}
end
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  local holder = redis.call('GET', KEYS[1])
  if holder ~= ARGV[1] then
    return {0, holder, redis.call('PTTL', KEYS[1])}
  end
end
keep(KEYS[2], math.max(tonumber(seen[1]) or 0, tonumber(ARGV[3])), tonumber(ARGV[4]))
return 1
