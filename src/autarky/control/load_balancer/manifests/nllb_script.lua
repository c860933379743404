-- What HAProxy's configuration language cannot express: holding connections, which servers start as down, and whose
-- sessions are closed.
--
-- Start as down. HAProxy considers a server healthy until its first check has failed. For a second, new connections
-- would go to servers that were known to be down before a reload, or of which nothing is known: these start as down.
-- (A single member of etcd is not checked: it would stay down.)
--
-- Hold. While the API servers start after a power cut, each accepts connections before it is ready, and answers 403
-- until it knows its roles; before them the members of etcd start and find each other. So as long as no server has
-- been up, connections are held. A client that is refused backs off, API servers (as clients of etcd) and kubelets
-- alike; and a kubelet that is served too early starts all its pods while the API servers need the CPU. When a server
-- was up and is not any more, its checks may only be late, and nothing is held. And where machines are so slow that no
-- server is ever ready in time, one that has been alive for a while is good enough. All held connections share one
-- look at the servers: one each would be too much for a slow machine.
--
-- Sessions. A server of `ready` that is not ready gets no new connections, but its sessions should end cleanly: it
-- drains. They are closed when it is not even alive, which HAProxy's own `on-marked-down` cannot know, since that is
-- another check. Nor does it know why a server is down: one that drains closes its listener, and then answers the
-- requests that it has. Sessions of `alive`, which gets connections while no server is ready, are treated alike.
--
-- A check of `alive` is patient, since a slow server is alive. A server that is gone needs no patience, and the checks
-- of `ready` show it quickly: connections are refused, there is no route, or connection attempts are not answered.
-- Such a server is down at once. Its sessions are closed, but not as soon as it refuses: then its kernel is up, and
-- has itself closed the sessions of a process that is gone. They are closed when any draining server must have
-- stopped, and at once if nobody answered before: such a host was without power, and does not know them. The own node
-- is certainly there: if it does not answer connection attempts, HAProxy is starved.
--
-- A worker that was told to stop makes no more checks, and HAProxy keeps reporting the last result. So the script
-- judges no server there, and sessions with a server that hangs later are for their clients to close.
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

-- The result of the last check of `ready`. HAProxy forgets why a connection failed when it starts the next check.
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

-- Whether a server is up in `alive`, and whether the next failed check may mark it down there.
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
