// NcclChannel: one end of a link of transport Nccl, as its device's issuing thread sees it.
//
// A communicator of two ranks, the producer 0 and the consumer 1, a block of slots, a stream, an
// event for each slot, and a socket to the other end's channel. The states, all changed in step():
//
//   Init --init()--> Joining --Success--> Agreeing --turn of both-> WarmingUp --proof there--> Open
//     |                 |                    |                        |                        |
//     +-----------------+--------------------+-- an error, or close() +------------------------+
//                                            v
//                                  Ending: revoke, abort --> Failed --close()--> Gone
//
// The first operation of a communicator connects the pair: its launch at one end ends only when the
// other end has launched its own, and meanwhile no other communicator of the device may be used.
// Two processes that began with different communicators would deadlock. So both ends first agree
// through the socket:
//
//   consumer   its turn? keep it, "ready" ------>  producer   its turn? keep it, "start", send
//              receive                    <------             taken? "later"
//              "later": give the turn back, try again
//
// A consumer holds its turn only for an answer that the producer sends at once, so no cycle can
// form. The socket also reports the death of the peer, which NCCL within a host does not.
//
// In Open, operations go one by one: launched (state() says Success), then an event, then the next.
// A receive is posted when the message that announces the tensor was read, so its kernel hardly
// waits; a send's kernel can wait until its receiver reads messages, one CTA long.
//
// Threads: step() and gone() from the issuing thread, all else from the loop's. `wake` is called
// without a lock that the loop's calls need, and not after close().
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ipc/base/result.hpp"
#include "ipc/device/device_memory.hpp"
#include "ipc/device/nccl.hpp"
#include "ipc/transport/owned_fd.hpp"
#include "ipc/transport/tensor_link.hpp"

namespace paceline {

class NcclChannel;

/// What the channels of a device share.
struct NcclTurn {
    Driver& driver;
    Nccl& nccl;
    const NcclChannel* owner = nullptr;               // whose operation is being launched
    std::function<void(const std::string&)> closing;  // a link's name; empty: done
};

enum class NcclRank : std::uint8_t { Producer = 0, Consumer = 1 };

class NcclChannel {
public:
    enum class Did : std::uint8_t { Nothing, Waited, Moved };

    struct Parts {  // of open_nccl_in(), open_nccl_out()
        NcclRank rank = NcclRank::Producer;
        LinkSpec spec;
        NcclId id{};
        OwnedFd peer;
        DeviceMemoryBlock memory;
        DeviceStream stream = nullptr;
        std::vector<DeviceEvent> events;  // one for each slot
    };

    explicit NcclChannel(Parts parts);
    NcclChannel(const NcclChannel&) = delete;
    NcclChannel& operator=(const NcclChannel&) = delete;
    ~NcclChannel() = default;

    // The link.
    [[nodiscard]] Result<LinkState> poll() const;
    [[nodiscard]] std::byte* slot(std::uint32_t index) const;
    /// Sends slot `index`, or receives into it.
    void post(std::uint32_t index, std::size_t bytes);
    /// Whether what was posted for the slot is done.
    [[nodiscard]] bool done(std::uint32_t index) const;
    void refuse(Error error);
    void close();

    // The issuing thread.
    Did step(NcclTurn& turn);
    [[nodiscard]] bool gone() const { return stage_ == Stage::Gone; }

private:
    using Clock = std::chrono::steady_clock;
    enum class Stage : std::uint8_t { Init, Joining, Agreeing, WarmingUp, Open, Failed, Gone };
    enum class Word : char { Ready = 'r', Start = 's', Later = 'l', None = 0, Gone = 1 };
    struct Operation {
        std::uint32_t index = 0;
        std::size_t bytes = 0;
    };

    Did init(NcclTurn& turn);
    Did join(NcclTurn& turn);
    Did agree(NcclTurn& turn);
    Did warm_up(NcclTurn& turn);
    Did work(NcclTurn& turn);
    [[nodiscard]] bool take(NcclTurn& turn) const;
    void give_back(NcclTurn& turn) const;
    void begin_warm_up(NcclTurn& turn);
    void issue(NcclTurn& turn, Operation operation);
    /// Looks at what is being launched, and at the events of what was.
    Did look(NcclTurn& turn);
    Did look_at_launch(NcclTurn& turn);
    void look_for_peer(NcclTurn& turn);
    void finish_front();
    [[nodiscard]] std::vector<std::byte> warm_up_bytes() const;
    [[nodiscard]] Status check_warm_up(NcclTurn& turn) const;

    [[nodiscard]] Word read_word();
    void say(Word word);
    [[nodiscard]] std::string operation_text(const Operation& operation) const;
    [[nodiscard]] std::string place() const;
    void fail(NcclTurn& turn, const std::string& operation, NcclResult result);
    void fail(NcclTurn& turn, Error error);
    void end_communicator(NcclTurn& turn);
    void leave(NcclTurn& turn);
    void wake();

    Parts parts_;

    // Of the issuing thread.
    Stage stage_ = Stage::Init;
    NcclComm comm_ = nullptr;
    bool launching_ = false;
    std::deque<Operation> launched_;  // the last one is being launched, if one is
    bool asked_ = false;              // a consumer that said "ready"
    Clock::time_point again_{};       // when it may say so again
    std::optional<Clock::time_point> peer_gone_;

    // Of both.
    mutable std::mutex mutex_;
    std::deque<Operation> posted_;
    std::vector<std::uint32_t> waiting_;  // of a slot: operations that are not done
    bool open_ = false;
    bool closing_ = false;
    std::optional<Error> error_;
    std::mutex wake_mutex_;  // held while `wake` is called
};

}  // namespace paceline
