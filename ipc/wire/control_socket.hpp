// ControlSocket: one end of the connection on which control messages (control.hpp) travel.
//
// A socketpair that the child inherits: it has no path, so there is no peer to authenticate and
// nothing to clean up, and its end of file shows that the peer has ended.
//
//   0       4         6      8      12      16     18   20     24
//   +-------+---------+------+------+-------+------+----+------+------+
//   | magic | version | type | len  | files | from | to | zero | body |
//   +-------+---------+------+------+-------+------+----+------+------+
//
// The header is read and checked in full first; len is at most what the type allows, and memory
// is taken as bytes arrive, not as they are promised. Descriptors travel with the first bytes: the
// kernel takes 253 in one call, so more of them go in portions, each with a byte of the header.
// Move-only; one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ipc/base/result.hpp"
#include "ipc/transport/owned_fd.hpp"
#include "ipc/wire/control.hpp"

namespace paceline {

inline constexpr std::uint32_t kControlMagic = 0x45434150U;  // "PACE"
inline constexpr std::size_t kControlFilesMax = 800;         // one control message may carry

struct ControlFrameHeader {
    std::uint32_t magic;
    std::uint16_t version;
    std::uint16_t type;
    std::uint32_t len;
    std::uint32_t files;
    std::uint16_t from;  // Envelope
    std::uint16_t to;
    std::uint32_t zero;
};
static_assert(sizeof(ControlFrameHeader) == 24);
static_assert(3 * control::kEdgesMax + 1 <= kControlFilesMax, "ring, pool and bell of every edge");

/// Whose message it is, and for which actor of the receiving process; 0 and 0 for what concerns
/// the process itself.
struct Envelope {
    StageId from{};
    StageId to{};
};

class ControlSocket {
public:
    using Millis = std::chrono::milliseconds;
    using Deadline = std::chrono::steady_clock::time_point;

    struct Received {
        control::Message message;
        std::vector<OwnedFd> files;
        Envelope envelope{};
    };

    /// One message on its way out: what of it, and of the descriptors that go with it, is still to
    /// be sent.
    class Frame {
    public:
        /// Precondition: not more than kControlFilesMax files, which are borrowed.
        explicit Frame(const control::Message& message,
                       std::span<const int> files = {},
                       Envelope envelope = {});
        [[nodiscard]] std::size_t bytes_left() const { return bytes_.size() - sent_; }
        /// Takes copies of the descriptors that are still to be sent, so that it may outlive them.
        [[nodiscard]] Status own_files();

    private:
        friend class ControlSocket;
        std::vector<std::byte> bytes_;
        std::size_t sent_ = 0;
        std::vector<int> files_;      // still to be sent
        std::vector<OwnedFd> owned_;  // the same, after own_files()
    };
    enum class Sent : std::uint8_t {
        All,
        Full,           // the peer has to read first
        FilesInFlight,  // this user has as many descriptors on their way as the kernel allows
    };

    ControlSocket() = default;
    explicit ControlSocket(OwnedFd fd) : fd_{std::move(fd)} {}
    [[nodiscard]] static Result<std::pair<ControlSocket, ControlSocket>> make_pair();

    /// Sends one message and, with it, copies of `files`. Waits at most `limit` for a peer that
    /// does not read. Errc::PeerGone if there is no peer.
    [[nodiscard]] Status send(const control::Message& message,
                              std::span<const int> files = {},
                              Millis limit = Millis{10'000},
                              Envelope envelope = {});

    /// As much of a message as can be sent without waiting; the rest when it is called again.
    /// Nothing else may be sent in between. Errc::PeerGone if there is no peer.
    [[nodiscard]] Result<Sent> try_send(Frame& frame);

    /// One message if a whole one has arrived, without waiting.
    [[nodiscard]] Result<std::optional<Received>> try_receive();
    /// Waits for one message. Errc::Cancelled when the deadline passes.
    [[nodiscard]] Result<Received> receive(Deadline deadline);

    [[nodiscard]] int fd() const { return fd_.get(); }
    void close() { fd_.reset(); }

private:
    enum class Read : std::uint8_t { Some, Nothing, EndOfFile };
    [[nodiscard]] Result<Read> read_some();
    [[nodiscard]] Result<std::optional<Received>> take_frame();

    OwnedFd fd_;
    std::vector<std::byte> pending_;
    std::deque<OwnedFd> pending_files_;
};

}  // namespace paceline
