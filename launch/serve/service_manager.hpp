// tell_service_manager(): the protocol of systemd for Type=notify services: one datagram, such as
// READY=1, to the socket that it names.
//
// A service that nothing started as such has no socket: nothing happens. Any thread; never blocks.
#pragma once

#include <string>

#include "ipc/base/result.hpp"

namespace paceline::serve {

/// `socket`: a path, or a name with @ in front in Linux' abstract space. Errors: BadArgument for
/// another form, and those of the system.
Status tell_service_manager(const std::string& socket, const std::string& lines);

}  // namespace paceline::serve
