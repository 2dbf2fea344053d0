-- Tells whether the holder has the locks. Changes nothing.
--
-- KEYS the lock of every name   ARGV[1] holder
--
-- Replies  1                         held
--          {0, holder, pttl, which}  not held: which name, who holds it ('': nobody), and what is left in ms

for i, lock in ipairs(KEYS) do
  local holder = redis.call('GET', lock)
  if holder ~= ARGV[1] then
    return {0, holder or '', redis.call('PTTL', lock), i - 1}
  end
end
return 1
