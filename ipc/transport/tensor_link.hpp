// TensorLink: the way of one edge's tensors into the memory of the consumer's device.
//
// The tensor pool of the edge (tensor_pool.hpp) keeps the states of its slots in the host's shared
// memory as it always does; a link replaces the memory of the slots. Both ends count slots alike.
//
//   Exported   the consumer exports memory of its device, the producer maps it and its device
//              writes it: what is published has arrived.
//   Nccl       the producer fills staging slots of its own; send() puts one on its way, and the
//              consumer receives it into its slot of the same number once it has read the message
//              that announces it.
//
//   consumer   open_in() ---> [Connecting] -----------------------------------> [Open] -> destroyed
//                   | LinkOffer, by way of the conductor                          ^
//   producer        +---------> open_out() ---> [Connecting] ---------------------+
//
// An edge whose link is not open has no free slot: its producer waits as for any full pool.
// A link belongs to one epoch of both ends. When a peer is lost its links are destroyed once no job
// uses their slots; a destructor takes bounded time, whatever became of the peer.
//
// Threads: all calls come from the loop's thread, and none waits. A link may have threads of its
// own; `wake` is called from them when poll(), arrived() or reusable() has an answer that it had
// not before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ipc/base/result.hpp"
#include "ipc/transport/owned_fd.hpp"

namespace paceline {

enum class Transport : std::uint8_t {
    Host,      // slots in shared memory of the host; no link
    Local,     // both ends in one process: slots on the consumer's device; no link
    Exported,  // device memory that another process maps
    Nccl,
};

/// "host", "local", "exported", "nccl": as people write it.
[[nodiscard]] constexpr const char* name_of(Transport transport) {
    switch (transport) {
        case Transport::Host:
            return "host";
        case Transport::Local:
            return "local";
        case Transport::Exported:
            return "exported";
        case Transport::Nccl:
            return "nccl";
    }
    return "unknown";
}
/// Whether the slots of such an edge are the memory of a link between two processes.
[[nodiscard]] constexpr bool has_link(Transport transport) {
    return transport == Transport::Exported || transport == Transport::Nccl;
}

/// What the consumer's end tells the producer's. Of no meaning to those who pass it on.
struct LinkOffer {
    std::vector<std::byte> bytes = {};
    std::vector<OwnedFd> files = {};
};

enum class LinkState : std::uint8_t { Connecting, Open };

/// Either end. An error of poll() is final and names transport, both stages and the operation.
class TensorLink {
public:
    TensorLink() = default;
    TensorLink(const TensorLink&) = delete;
    TensorLink& operator=(const TensorLink&) = delete;
    virtual ~TensorLink() = default;

    [[nodiscard]] virtual Result<LinkState> poll() = 0;
    /// Device memory of a slot at this end. Precondition: open, index below the slots.
    [[nodiscard]] virtual std::byte* slot(std::uint32_t index) = 0;
};

class OutLink : public TensorLink {
public:
    /// Slot `index` holds `bytes` that its device has written (the writer's stream was waited for);
    /// the message that announces it is in the ring.
    virtual void send(std::uint32_t index, std::size_t bytes) = 0;
    /// Whether the slot may be written again, as far as this end knows; the pool's state comes on
    /// top.
    [[nodiscard]] virtual bool reusable(std::uint32_t index) = 0;
};

class InLink : public TensorLink {
public:
    /// A message has announced `bytes` in slot `index`. Called in the order of the messages, for
    /// stale ones too: what was sent must be received.
    virtual void expect(std::uint32_t index, std::size_t bytes) = 0;
    /// Whether they are there, after expect().
    [[nodiscard]] virtual bool arrived(std::uint32_t index) = 0;
};

struct LinkSpec {
    std::string name;  // "early-verify -> final-verify", for errors
    std::uint32_t slots = 0;
    std::size_t slot_bytes = 0;
    std::function<void()> wake;  // see above; may be called until the link is destroyed
};

/// The device of a process, as far as channels use it. Made by launch/, borrowed by the loop.
class TensorDevice {
public:
    TensorDevice() = default;
    TensorDevice(const TensorDevice&) = delete;
    TensorDevice& operator=(const TensorDevice&) = delete;
    virtual ~TensorDevice() = default;

    /// Memory of this device for channels inside the process. Errors: OutOfMemory.
    [[nodiscard]] virtual Result<std::shared_ptr<std::byte>> allocate(std::size_t bytes) = 0;
    /// The consumer's end; fills `offer`. Errors: OutOfMemory, Unsupported, System.
    [[nodiscard]] virtual Result<std::unique_ptr<InLink>> open_in(Transport transport,
                                                                  LinkSpec spec,
                                                                  LinkOffer& offer) = 0;
    /// The producer's end. Errors: Protocol for an offer that is not one, Unsupported, System.
    [[nodiscard]] virtual Result<std::unique_ptr<OutLink>> open_out(Transport transport,
                                                                    LinkSpec spec,
                                                                    LinkOffer offer) = 0;
    /// An error is final: a link that was destroyed cannot be closed (an abort that does not
    /// return), and only the end of this process frees what it holds. poll() of its other links
    /// says so too.
    [[nodiscard]] virtual Status health() { return {}; }
};

}  // namespace paceline
