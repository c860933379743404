"""What HAProxy's own words cannot say, in its Lua: the hold, who begins as down, and who is gone.

HAProxy takes a server for healthy until its first check has failed. That would be a second in which new connections
go to servers that were known to be down before a reload, or of which nothing is known: these begin as down. (An only
member of etcd is not checked: down, it would stay so.)

While the API servers start after a power cut, each accepts before it is ready, and answers 403 until it knows its
roles; before them the members of etcd start, and look for each other. So as long as no server has been up, a
connection is held. Whoever were refused would ask again ever more seldom, API servers (which ask etcd) and kubelets
alike; and a kubelet that is served too early starts all its pods while the API servers want the processors. A server
that was up and is not any more may only be late with its checks: then there is nothing to wait for. And where the
machines are so slow that nobody is ever ready in time, one that has lived for a while is as good as it gets.
All that are held share one look: each would cost a slow machine more than it has.

A server of `ready` is out of use when it is not ready, but its sessions are to end well: it drains. They are to be
cut when it is not even alive, which HAProxy's own `on-marked-down` cannot know, as that is another check.

A check of `alive` is patient, since a slow server lives. Who is gone needs no patience, and the checks of `ready` are
quick enough to tell: they are refused, or nobody answers their attempts to connect. Such a server is dead at once.
The own node is there: where it does not answer attempts to connect, it is HAProxy that is starved.
"""

from __future__ import annotations

from autarky.model import patience

_LOOK_SECONDS, _WATCH_SECONDS = 0.05, 0.3


def script(*, in_use: str, own: str) -> str:
    """in_use: the file with what the former worker held for healthy. own: the address by which the node's own servers
    are led to."""
    return f"""\
local paths = {{ ready = "", alive = "alive/", etcd = "etcd/" }}
local was_up, looked = {{}}, {{}}

local function seconds()
  local now = core.now()
  return now.sec + now.usec / 1000000
end

local function is_down(server)
  return server:get_stats().status:sub(1, 4) == "DOWN"
end

local function look(backend)
  local now = seconds()
  if was_up[backend] or now - (looked[backend] or 0) < {_LOOK_SECONDS} then return was_up[backend] end
  looked[backend] = now
  for _, server in pairs(core.backends[backend].servers) do
    was_up[backend] = was_up[backend] or not is_down(server)
  end
  return was_up[backend]
end

core.register_init(function()
  local in_use = {{}}
  local file = io.open("{in_use}", "r")
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

core.register_action("hold", {{ "tcp-req" }}, function(_, backend, most)
  local began = seconds()
  while not look(backend) and seconds() - began < tonumber(most) do
    core.msleep({round(_LOOK_SECONDS * 1000)})
  end
end, 2)

local out_of_reach = {{}}

local function is_gone(name, server)
  local said = server:get_stats().check_status or ""
  local refused = said:find("L4CON", 1, true) ~= nil
  local unanswered = said:find("L4TOUT", 1, true) and not server:get_addr():find("{own}:", 1, true)
  if not refused and not unanswered then
    out_of_reach[name] = nil
    return false
  end
  out_of_reach[name] = out_of_reach[name] or seconds()
  local bearable = refused and {patience.REFUSED} or {patience.UNANSWERED}
  return seconds() - out_of_reach[name] >= bearable
end

core.register_task(function()
  local down, gone, lives_since = {{}}, {{}}, nil
  while true do
    local lives = false
    for name, server in pairs(core.backends["alive"].servers) do
      local is_down_now, ready = is_down(server), core.backends["ready"].servers[name]
      local is_gone_now = is_gone(name, ready)
      if is_gone_now and not gone[name] and not is_down_now then
        server:check_force_down()
        is_down_now = true
      end
      if is_down_now and not down[name] then ready:shut_sess() end
      down[name], gone[name], lives = is_down_now, is_gone_now, lives or not is_down_now
    end
    lives_since = lives and (lives_since or seconds()) or nil
    if lives_since ~= nil and seconds() - lives_since >= {patience.SECOND_BEST} then was_up["ready"] = true end
    core.msleep({round(_WATCH_SECONDS * 1000)})
  end
end)
"""
