-- Shared by the scripts that touch the fence counter; scripts.go puts it in front of them.

-- keep stores value, a number or its text, in the counter. The counter's life is never shortened: it becomes the
-- longer of what is left and ttl (ms; 0: for ever), and what never expires stays so.
local function keep(counter, value, ttl)
  local left = redis.call('PTTL', counter) -- -1: no expiry, -2: no counter
  local text = value
  if type(value) == 'number' then
    text = string.format('%.0f', value) -- exact below 2^53; the default format is not
  end
  if ttl == 0 or left == -1 then
    redis.call('SET', counter, text)
  else
    redis.call('SET', counter, text, 'PX', math.max(left, ttl))
  end
end
