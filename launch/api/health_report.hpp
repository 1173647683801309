// health_report(): what GET /health says of the engine, from its own snapshot.
//
//     loading     503   the model is being loaded
//     ok          200
//     degraded    200   a stage is lost that decoding does not need: slower
//     recovering  503   one is lost that it needs: answers pause
//     changing    200   another method is loaded: requests wait
//     draining    503   no further requests are taken
//     failed      503   the pipeline cannot continue
//     stalled     503   the engine's loop was not seen to run for kHeartbeatMax
//     stuck       503   of ?deep=1: no token was decoded
//
// A busy engine with a full queue is ok. `waits_for`: machines that are not connected, for people;
// empty: none. Pure.
#pragma once

#include <chrono>
#include <string>

#include "launch/api/method_in_use.hpp"
#include "launch/api/reply.hpp"
#include "launch/session/service.hpp"

namespace paceline::serve {

inline constexpr std::chrono::milliseconds kHeartbeatMax{1000};

[[nodiscard]] const char* name(ServiceState state);

[[nodiscard]] Reply loading_health(const std::string& waits_for = {});
[[nodiscard]] Reply health_report(const ServiceSnapshot& engine,
                                  const MethodInUse& method,
                                  std::chrono::steady_clock::time_point now,
                                  const std::string& waits_for = {});

/// Of ?deep=1, where health_report() is 200: whether a token was `decoded`, and how long it took.
[[nodiscard]] Reply deep_health_report(const ServiceSnapshot& engine,
                                       const MethodInUse& method,
                                       bool decoded,
                                       std::chrono::milliseconds took,
                                       const std::string& waits_for = {});

}  // namespace paceline::serve
