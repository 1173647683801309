// FrameReader: takes the received bytes of one connection apart into frames (node_frames.hpp).
//
// Bytes come in pieces of any size. A frame that lies whole in one piece is decoded in place; the
// bytes of a divided one are kept until the rest has come, at most those of the longest frame of
// the connection, and the memory grows with the bytes that have arrived. The first frame is a Hello
// or a Refused. A frame of another build is refused, by name if it is one of these two. After an
// error the reader stays refused. One thread.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "ipc/base/result.hpp"
#include "ipc/remote/node_frames.hpp"

namespace paceline::remote {

class FrameReader {
public:
    /// `node_epoch` is the sender's. An error of the callback ends the reader like one of its own.
    using OnFrame = std::function<Status(const Frame& frame, Epoch node_epoch)>;

    FrameReader(Build own, Channel channel) : own_{std::move(own)}, channel_{channel} {}
    /// Of a connection that was accepted: the first Hello says which of the two it is.
    explicit FrameReader(Build own) : own_{std::move(own)}, by_hello_{true} {}

    /// Calls `on_frame` for each frame that is complete. Errc::Protocol names the kind and the
    /// field that is wrong; every later call returns the same.
    [[nodiscard]] Status take(std::span<const std::byte> bytes, const OnFrame& on_frame);
    /// Bytes of an incomplete frame that wait for the rest.
    [[nodiscard]] std::size_t waiting() const { return pending_.size(); }
    /// Whether a Hello has come.
    [[nodiscard]] bool greeted() const { return greeted_; }

private:
    static constexpr std::size_t kPendingKept = 1U << 20;  // memory that stays for the next frame
    struct Header;
    [[nodiscard]] Result<Header> read_header(std::span<const std::byte> bytes) const;
    [[nodiscard]] Status take_frame(const Header& header,
                                    std::span<const std::byte> body,
                                    const OnFrame& on_frame);
    [[nodiscard]] Status take_pending(std::span<const std::byte>& bytes, const OnFrame& on_frame);

    Build own_;
    Channel channel_ = Channel::Main;
    bool by_hello_ = false;
    std::vector<std::byte> pending_;
    bool greeted_ = false;
    Status fault_;
};

}  // namespace paceline::remote
