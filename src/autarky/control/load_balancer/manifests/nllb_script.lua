-- What HAProxy's own words cannot say, in its Lua: the hold, who begins as down, and whose sessions are cut.
--
-- HAProxy takes a server for healthy until its first check has failed. That would be a second in which new connections
-- go to servers that were known to be down before a reload, or of which nothing is known: these begin as down. (An
-- only member of etcd is not checked: down, it would stay so.)
--
-- While the API servers start after a power cut, each accepts before it is ready, and answers 403 until it knows its
-- roles; before them the members of etcd start, and look for each other. So as long as no server has been up, a
-- connection is held. Whoever were refused would ask again ever more seldom, API servers (which ask etcd) and kubelets
-- alike; and a kubelet that is served too early starts all its pods while the API servers want the processors. A
-- server that was up and is not any more may only be late with its checks: then there is nothing to wait for. And
-- where the machines are so slow that nobody is ever ready in time, one that has lived for a while is as good as it
-- gets. All that are held share one look: each would cost a slow machine more than it has.
--
-- A server of `ready` is out of use when it is not ready, but its sessions are to end well: it drains. They are to be
-- cut when it is not even alive, which HAProxy's own `on-marked-down` cannot know, as that is another check. Nor does
-- that ask why: a server that has drained closes its listener, and then answers what it was asked before. Those of
-- `alive`, to which connections go while none is ready, are treated alike.
--
-- A check of `alive` is patient, since a slow server lives. Who is gone needs no patience, and the checks of `ready`
-- are quick enough to tell: they are refused, no route leads there, or nobody answers their attempts to connect. Such
-- a server is down at once. Its sessions are cut, but not since it refuses: a kernel that does so lives, and has ended
-- those of a process that is gone. They are cut when any server that drains has ended, and at once where nobody had
-- answered before: such a host was without power, and knows nothing of them. The own node is there: where it does not
-- answer attempts to connect, it is HAProxy that is starved.
--
-- A worker that is told to stop looks at nobody any more, and HAProxy says for ever how the last look ended. So it
-- judges nobody, and sessions with a server that hangs later are their clients' to end.
-- luacheck: read globals core

local in_use_file = "@IN_USE_FILE@" -- what the former worker considered healthy
local own = "@OWN@" -- the address by which the node's own servers are led to
local look_ms, watch_ms, close_watch_ms = 50, 300, tonumber("@CLOSE_WATCH_MS@")
-- Seconds.
local bearable_refused = tonumber("@REFUSED@")
local bearable_unanswered = tonumber("@UNANSWERED@")
local drained_after = tonumber("@DRAINED@")
local second_best_after = tonumber("@SECOND_BEST@")

local paths = { ready = "", alive = "alive/", etcd = "etcd/" }
local was_up, looked = {}, {}

local function seconds()
  local now = core.now()
  return now.sec + now.usec / 1000000
end

local function is_down(server)
  return server:get_stats().status:sub(1, 4) == "DOWN"
end

local function look(backend)
  local now = seconds()
  if was_up[backend] or now - (looked[backend] or 0) < look_ms / 1000 then return was_up[backend] end
  looked[backend] = now
  for _, server in pairs(core.backends[backend].servers) do
    was_up[backend] = was_up[backend] or not is_down(server)
  end
  return was_up[backend]
end

core.register_init(function()
  local in_use = {}
  local file = io.open(in_use_file, "r")
  if file ~= nil then
    for name in file:lines() do in_use[name] = true end
    file:close()
  end
  for backend, path in pairs(paths) do
    if core.backends[backend] ~= nil then
      for name, server in pairs(core.backends[backend].servers) do
        local checked = server:get_stats().status ~= "no check"
        if checked and not in_use[path .. name] then server:check_force_down() end
      end
    end
  end
end)

core.register_action("hold", { "tcp-req" }, function(_, backend, most)
  local began = seconds()
  while not look(backend) and seconds() - began < tonumber(most) do
    core.msleep(look_ms)
  end
end, 2)

local last_look, since, was_alive = {}, {}, {}

-- How the last look of `ready` ended. Why a connection failed HAProxy forgets when it begins with the next look.
local function how_it_looked(name, said)
  local under_way, how = (said.check_status or ""):match("^(%*? ?)(.*)$")
  if how ~= "L4CON" then
    last_look[name] = how
  elseif under_way == "" then
    last_look[name] = (said.last_chk or ""):find("Connection refused", 1, true) and "refused" or "out of reach"
  end
  return last_look[name]
end

local function has_lasted(what, long)
  return since[what] ~= nil and seconds() - since[what] >= long
end

-- True once, when it has been so for that long.
local function lasts_now(what, long, is_so)
  since[what] = is_so and (since[what] or seconds()) or nil
  if not has_lasted(what, long) then return false end
  since[what] = math.huge
  return true
end

-- Whether a server is up for `alive`, and whether the next look may be its end there.
local function judged(name, alive, ready)
  local said, how = alive:get_stats(), how_it_looked(name, ready:get_stats())
  local is_alive, patient = said.status:sub(1, 4) ~= "DOWN", said.check_status or ""
  local refused = how == "refused"
  local unanswered = how == "L4TOUT" and not ready:get_addr():find(own .. ":", 1, true)
  local came_back = refused and has_lasted("away " .. name, bearable_refused)
  local away = unanswered or how == "out of reach" or came_back
  local bearable = unanswered and bearable_unanswered or bearable_refused

  local is_silent = was_alive[name] and not is_alive and not patient:find("L4CON", 1, true)
  local is_away = lasts_now("away " .. name, bearable, away)
  local has_drained = lasts_now("refused " .. name, drained_after, refused)
  if lasts_now("gone " .. name, bearable, away or refused) and is_alive then
    alive:check_force_down()
    is_alive = false
  end
  if is_silent or is_away or has_drained then
    ready:shut_sess()
    alive:shut_sess()
  end
  was_alive[name] = is_alive
  return is_alive, is_alive and patient:find("L%d") and not patient:find("OK", 1, true)
end

core.register_task(function()
  local lives_since = nil
  while tostring(core.get_info().Stopping) ~= "1" do
    local lives, watch = false, watch_ms
    for name, alive in pairs(core.backends["alive"].servers) do
      local is_alive, is_close = judged(name, alive, core.backends["ready"].servers[name])
      lives = lives or is_alive
      if is_close then watch = close_watch_ms end
    end
    lives_since = lives and (lives_since or seconds()) or nil
    if lives_since ~= nil and seconds() - lives_since >= second_best_after then was_up["ready"] = true end
    core.msleep(watch)
  end
end)
