-- Takes the lock for a holder if it is free, and draws a number from the fence counter in the same step.
-- Idempotent: the holder that has the lock already is granted again, with a fresh number.
--
-- KEYS[1] lock            ARGV[1] holder
-- KEYS[2] fence counter   ARGV[2] TTL of the lock, ms
-- KEYS[3] gone mark       ARGV[3] floor of the number: the client's clock, µs
--                         ARGV[4] least TTL of the counter, ms; 0: it never expires
--
-- Replies  n                   granted: the number drawn, above 0
--          {0, holder, pttl}   refused: who holds, and what is left of it in ms (-1: no end)
--          {-1}                refused: this holder has withdrawn, the call is late

-- MGET takes what is not a string for missing, and the TTLs were checked: nothing below can fail once the lock is set.
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
local number = ARGV[3] -- as text: in most cases it stays, and formatting a number costs as much as a call
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if math.abs(number - now) > 1000000 then -- a stamp that is off by more than a second counts as this node's time
  number = now
end
local least = (tonumber(seen[1]) or 0) + 1
if least > tonumber(number) then
  number = least
end
keep(KEYS[2], number, tonumber(ARGV[4]))
return tonumber(number)
