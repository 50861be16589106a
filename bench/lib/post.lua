-- wrk's side of the bench: one POST again and again, the figures as JSON.
-- Arguments: the file of the body, the file of the paths ("-": the one of the URL), then headers as "Name: value".
local paths, at = {}, 0

function init(args)
  local f = assert(io.open(args[1], "rb"))
  wrk.method, wrk.body = "POST", f:read("*a")
  f:close()
  for i = 3, #args do
    local name, value = args[i]:match("^([^:]+): (.*)$")
    wrk.headers[name] = value
  end
  if args[2] ~= "-" then
    for line in io.lines(args[2]) do paths[#paths + 1] = wrk.format("POST", line) end
    function request()
      at = at % #paths + 1
      return paths[at]
    end
  end
end

function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format('JSON {"requests": %d, "seconds": %.6f, "p50": %.1f, "p99": %.1f, "failed": %d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50), latency:percentile(99),
    e.connect + e.read + e.write + e.status + e.timeout))
end
