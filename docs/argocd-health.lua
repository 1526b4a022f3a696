-- Argo CD's health check of BalancedStreams; see docs/reference/conditions.md.
local health = { status = "Progressing", message = "waits for the operator" }
if obj.status == nil or obj.status.observedGeneration ~= obj.metadata.generation then
  return health
end
for _, condition in ipairs(obj.status.conditions or {}) do
  if condition.status == "True" then
    if condition.type == "Suspended" then
      return { status = "Suspended", message = condition.message }
    elseif condition.type == "Stalled" then
      return { status = "Degraded", message = condition.message }
    elseif condition.type == "Ready" then
      health = { status = "Healthy", message = condition.message }
    elseif condition.type == "Reconciling" then
      health = { status = "Progressing", message = condition.message }
    end
  end
end
return health
