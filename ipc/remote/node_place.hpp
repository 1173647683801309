// NodePlace: where a machine listens or is reached: an address, an interface or a host name, and a
// port.
//
// A value; parse() and text() for any thread. find_own_address() asks the system, and waits for a
// name's address if it is given a name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ipc/base/result.hpp"

namespace paceline::remote {

struct NodePlace {
    std::string host;  // an address, the name of an interface (to listen) or of a host
    std::uint16_t port = 0;
    /// "10.0.0.1:47600", "eth1:47600", "[fd00::1]:47600", "node-a:47600". Errc::BadArgument.
    [[nodiscard]] static Result<NodePlace> parse(std::string_view text);
    [[nodiscard]] std::string text() const;
};

/// The numeric address of this machine that `host` means: itself, the interface's first one (IPv4
/// before IPv6), or the name's. Errc::BadArgument: none; a wildcard, which is no single one; a name
/// other than localhost that means only loopback addresses here, which no other machine reaches.
[[nodiscard]] Result<std::string> find_own_address(const std::string& host);
/// The interface that has this numeric address; empty: none.
[[nodiscard]] std::string interface_of(const std::string& address);

}  // namespace paceline::remote
