-- Lifts the fence counters to the token, if the holder still has the locks. A counter that is at the token already
-- was put there by somebody else: accepting it would give two holders one token.
--
-- KEYS the lock of every  ARGV[1] holder
-- name, then the fence    ARGV[2] token
-- counter of every name   ARGV[3] least TTL of the counters, ms; 0: they never expire
--
-- Replies  1                         raised
--          {0, holder, pttl, which}  refused: a lock is lost; of which name, who holds it ('': nobody), and what is left in ms
--          {2, number, others}       refused: the highest counter, and how many others hold the name here

local names = #KEYS / 2
for i = 1, names do
  local holder = redis.call('GET', KEYS[i])
  if holder ~= ARGV[1] then
    return {0, holder or '', redis.call('PTTL', KEYS[i]), i - 1}
  end
end
local number = 0
for _, counter in ipairs(redis.call('MGET', unpack(KEYS, names + 1))) do
  number = math.max(number, tonumber(counter) or 0)
end
if number >= tonumber(ARGV[2]) then
  return {2, number, 0}
end
for i = names + 1, #KEYS do
  keep(KEYS[i], tonumber(ARGV[2]), tonumber(ARGV[3]))
end
return 1
