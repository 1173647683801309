#include "launch/serve/service_manager.hpp"

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <sys/socket.h>
#include <sys/un.h>

#include "ipc/transport/owned_fd.hpp"

namespace paceline::serve {

Status tell_service_manager(const std::string& socket, const std::string& lines) {
    if (socket.empty()) return {};
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const bool form = socket[0] == '/' || socket[0] == '@';
    if (!form || socket.size() >= sizeof address.sun_path)
        return Error{Errc::BadArgument, "NOTIFY_SOCKET is neither a path nor an abstract name"};
    std::memcpy(address.sun_path, socket.data(), socket.size());
    if (socket[0] == '@') address.sun_path[0] = '\0';
    const auto failed = [] {
        return Error{Errc::System,
                     std::string{"the service manager cannot be told: "} + std::strerror(errno)};
    };
    const OwnedFd own{::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    if (own.get() < 0) return failed();
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket.size());
    const ssize_t sent = ::sendto(own.get(), lines.data(), lines.size(), MSG_NOSIGNAL,
                                  reinterpret_cast<const sockaddr*>(&address), length);
    return sent < 0 ? Status{failed()} : Status{};
}

}  // namespace paceline::serve
