-- Deletes the lock, if the holder has it. Where a call of this holder may still arrive late, it leaves a mark by
-- which that call is refused.
--
-- KEYS[1] lock        ARGV[1] holder
-- and for a mark:
-- KEYS[2] gone mark   ARGV[2] life of the mark, ms
--                     ARGV[3] 1: leave the mark even if the lock was found (what could come late has not all come)
--
-- Replies  1                   deleted
--          {0, holder, pttl}   refused: not this holder's; who holds ('': nobody), and what is left in ms

local holder = redis.call('GET', KEYS[1])
local mine = holder == ARGV[1]
if KEYS[2] and (not mine or ARGV[3] == '1') then
  redis.call('SET', KEYS[2], '', 'PX', ARGV[2])
end
if not mine then
  return {0, holder or '', redis.call('PTTL', KEYS[1])}
end
redis.call('DEL', KEYS[1])
return 1
