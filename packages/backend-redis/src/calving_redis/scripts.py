"""The atomic scripts. Each checks all its preconditions before its first write.

Keys: ``state`` (id, last, saved, epoch), ``positions``, ``topic-ids``, ``log``, ``lease``; one hash slot. An offset is
the server's clock in microseconds, or the last offset plus one if that is larger. So no two events get the same offset,
even if a failover loses writes or the store is restored from an older copy.
"""

_NEXT = """
local function append(state, log, sender, spans, beside, from)
  local now = redis.call('TIME')
  local last = tonumber(redis.call('HGET', state, 'last') or '0')
  local offset = math.max(last + 1, now[1] * 1000000 + now[2])
  for i = from, #ARGV do
    redis.call('XADD', log, string.format('%.0f-0', offset), 's', sender, 'p', spans, 'b', beside, 'e', ARGV[i])
    last = offset
    offset = offset + 1
  end
  redis.call('HSET', state, 'last', string.format('%.0f', last))
end
"""

PUBLISH = (
    "#!lua\n"
    + _NEXT
    + """
-- KEYS: state, positions, log, topic ids.
-- ARGV: id, sender, spans, beside, count, (partition, start, end, topic id)..., events...
if redis.call('HGET', KEYS[1], 'id') ~= ARGV[1] then return {'recreated'} end
local count = tonumber(ARGV[5])
for i = 0, count - 1 do
  local at = 6 + 4 * i
  local stored = redis.call('HGET', KEYS[2], ARGV[at]) or ''
  if stored ~= ARGV[at + 1] then return {'moved', ARGV[at], stored, ARGV[at + 1]} end
end
append(KEYS[1], KEYS[3], ARGV[2], ARGV[3], ARGV[4], 6 + 4 * count)
for i = 0, count - 1 do
  local at = 6 + 4 * i
  redis.call('HSET', KEYS[2], ARGV[at], ARGV[at + 2])
  redis.call('HSET', KEYS[4], ARGV[at], ARGV[at + 3])
end
return {'done'}
"""
)

ACKNOWLEDGE = (
    "#!lua\n"
    + _NEXT
    + """
-- KEYS: state, positions, log, topic ids.
-- ARGV: id, epoch, sender, saved or '', audit in microseconds, settled, beside, count, departed topics..., events...
if redis.call('HGET', KEYS[1], 'id') ~= ARGV[1] then return {'recreated'} end
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch ~= ARGV[2] then return {'fenced', epoch or '', ARGV[2]} end
local count = tonumber(ARGV[8])
append(KEYS[1], KEYS[3], ARGV[3], ARGV[6], ARGV[7], 9 + count)
if count > 0 then
  local departed = {}
  for i = 9, 8 + count do departed[ARGV[i]] = true end
  for _, partition in ipairs(redis.call('HKEYS', KEYS[2])) do
    local topic = string.match(partition, '^(.*):')
    local id = string.gsub(redis.call('HGET', KEYS[4], partition) or '', '~$', '')
    if departed[id == '' and topic or topic .. '@' .. id] then
      redis.call('HDEL', KEYS[2], partition)
      redis.call('HDEL', KEYS[4], partition)
    end
  end
end
if ARGV[4] ~= '' then
  local saved = tonumber(redis.call('HGET', KEYS[1], 'saved') or '0')
  if tonumber(ARGV[4]) > saved then
    saved = tonumber(ARGV[4])
    redis.call('HSET', KEYS[1], 'saved', ARGV[4])
  end
  local now = redis.call('TIME')
  local kept = math.min(saved, now[1] * 1000000 + now[2] - tonumber(ARGV[5]))
  if kept > 0 then redis.call('XTRIM', KEYS[3], 'MINID', string.format('%.0f-0', kept)) end
end
return {'done'}
"""
)

REWIND = """#!lua
-- KEYS: state, positions, log, topic ids. ARGV: id, epoch, new id, (partition, offset)...
-- Offsets are not given out again.
if redis.call('HGET', KEYS[1], 'id') ~= ARGV[1] then return {'recreated'} end
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch ~= ARGV[2] then return {'fenced', epoch or '', ARGV[2]} end
local last = tonumber(redis.call('HGET', KEYS[1], 'last') or '0')
redis.call('HSET', KEYS[1], 'id', ARGV[3], 'saved', string.format('%.0f', last + 1))
redis.call('DEL', KEYS[2], KEYS[3], KEYS[4])
for i = 4, #ARGV, 2 do redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1]) end
return {'done'}
"""

REPLAY = """#!lua
-- KEYS: state. A new epoch: whoever led before can no longer acknowledge.
local epoch = redis.call('HINCRBY', KEYS[1], 'epoch', 1)
return {redis.call('HGET', KEYS[1], 'id'), epoch, redis.call('HGET', KEYS[1], 'saved') or '',
        redis.call('HGET', KEYS[1], 'last') or '0'}
"""

LEAD = """#!lua
-- KEYS: lease. ARGV: member, milliseconds.
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""

RELEASE = """#!lua
-- KEYS: lease. ARGV: member.
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
"""
