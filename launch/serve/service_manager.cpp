#include "launch/serve/service_manager.hpp"

#ifdef PACELINE_SYSTEMD
#include <systemd/sd-daemon.h>
#endif

namespace paceline::serve {
namespace {

/// A failure changes nothing for clients; the manager notices that it is not told.
void notify(const std::string& state) {
#ifdef PACELINE_SYSTEMD
    (void)sd_notify(0, state.c_str());
#else
    (void)state;
#endif
}

}  // namespace

void tell_ready(const std::string& status) {
    notify("READY=1\nSTATUS=" + status);
}

void tell_stopping() {
    notify("STOPPING=1\nSTATUS=answers finish, no others are taken");
}

}  // namespace paceline::serve
