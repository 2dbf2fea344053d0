-- Tells whether the holder has the lock. Changes nothing.
--
-- KEYS[1] lock   ARGV[1] holder
--
-- Replies  1                   held
--          {0, holder, pttl}   not held; who holds ('': nobody), and what is left in ms

local holder = redis.call('GET', KEYS[1])
if holder ~= ARGV[1] then
  return {0, holder or '', redis.call('PTTL', KEYS[1])}
end
return 1
