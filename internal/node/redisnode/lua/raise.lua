-- Lifts the fence counter to the token, if the holder still has the lock. A counter that is at the token already
-- was put there by somebody else: accepting it would give two holders one token.
--
-- KEYS[1] lock            ARGV[1] holder
-- KEYS[2] fence counter   ARGV[2] token
--                         ARGV[3] least TTL of the counter, ms; 0: it never expires
--
-- Replies  1                    raised
--          {0, holder, pttl}    refused: the lock is lost; who holds ('': nobody), and what is left in ms
--          {2, number, others}  refused: the counter, and how many others hold the name here

local holder = redis.call('GET', KEYS[1])
if holder ~= ARGV[1] then
  return {0, holder or '', redis.call('PTTL', KEYS[1])}
end
local number = tonumber(redis.call('GET', KEYS[2])) or 0
local token = tonumber(ARGV[2])
if number >= token then
  return {2, number, 0}
end
keep(KEYS[2], token, tonumber(ARGV[3]))
return 1
