-- Takes the locks of all names for a holder if all are free, and draws a number from the fence counters in the same
-- step. Idempotent: the holder that has the locks already is granted again, with a fresh number.
--
-- KEYS[1] gone mark       ARGV[1] holder
-- then the lock of every  ARGV[2] TTL of the locks, ms
-- name, then the fence    ARGV[3] floor of the number: the client's clock, µs
-- counter of every name   ARGV[4] least TTL of the counters, ms; 0: they never expire
--
-- Replies  n                         granted: the number drawn, above 0
--          {0, holder, pttl, which}  refused: who holds which of the names, counted from 0, and what is left of that in ms
--                                    (-1: no end)
--          {-1}                      refused: this holder has withdrawn, the call is late

local names = (#KEYS - 1) / 2
-- MGET takes what is not a string for missing, and the TTLs were checked: nothing can fail once the locks are set.
local seen = redis.call('MGET', KEYS[1], unpack(KEYS, names + 2))
if seen[1] then
  return {-1}
end
for i = 2, names + 1 do
  if not redis.call('SET', KEYS[i], ARGV[1], 'NX', 'PX', ARGV[2]) then
    local holder = redis.pcall('GET', KEYS[i])
    if holder ~= ARGV[1] then
      if i > 2 then
        redis.call('DEL', unpack(KEYS, 2, i - 1)) -- all or nothing
      end
      return type(holder) == 'table' and holder or {0, holder, redis.call('PTTL', KEYS[i]), i - 2}
    end
  end
end
local number = ARGV[3] -- as text: in most cases it stays, and formatting a number costs as much as a call
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if math.abs(number - now) > 1000000 then -- a stamp that is off by more than a second counts as this node's time
  number = now
end
for i = 2, names + 1 do
  local least = (tonumber(seen[i]) or 0) + 1
  if least > tonumber(number) then
    number = least
  end
end
for i = names + 2, #KEYS do
  keep(KEYS[i], number, tonumber(ARGV[4]))
end
return tonumber(number)
