-- Deletes the locks that the holder has. Where a call of this holder may still arrive late, it leaves a mark by which
-- that call is refused. A lock that must stay for a minimum stays without its holder, whom nothing can extend then.
--
-- KEYS the lock of every  ARGV[1] holder
-- name; and for a mark:   ARGV[2] how long the locks stay yet, ms; 0: they are deleted
-- the gone mark           and for a mark:
--                         ARGV[3] life of the mark, ms
--                         ARGV[4] 1: leave the mark even if all locks were found (what could come late has not all come)
--
-- Replies  1                         released
--          {0, holder, pttl, which}  refused: the holder did not have all locks, and has none now; which was the first, who
--                                    holds it ('': nobody), and what is left in ms

local marked = #ARGV > 2
local released = 'released:' .. ARGV[1]
local refusal
for i = 1, marked and #KEYS - 1 or #KEYS do
  local holder = redis.pcall('GET', KEYS[i]) -- a key of another type must not keep the other locks
  if type(holder) == 'table' then
    refusal = refusal or holder
  elseif holder ~= ARGV[1] then
    if holder ~= released then
      refusal = refusal or {0, holder or '', redis.call('PTTL', KEYS[i]), i - 1}
    end
  elseif ARGV[2] == '0' then
    redis.call('DEL', KEYS[i])
  else
    redis.call('SET', KEYS[i], released, 'PX', ARGV[2])
  end
end
if marked and (refusal or ARGV[4] == '1') then
  redis.call('SET', KEYS[#KEYS], '', 'PX', ARGV[3])
end
return refusal or 1
