// What systemd is told of the server, where a unit of Type=notify started it ($NOTIFY_SOCKET).
//
// Without libsystemd (cmake -DPACELINE_SYSTEMD=OFF) nothing happens. Any thread.
#pragma once

#include <string>

namespace paceline::serve {

/// READY=1: requests are answered.
void tell_ready(const std::string& status);
/// STOPPING=1: the drain has begun.
void tell_stopping();

}  // namespace paceline::serve
