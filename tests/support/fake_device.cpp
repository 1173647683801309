#include "tests/support/fake_device.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "ipc/base/check.hpp"

namespace paceline::testing {
namespace {

using State = std::shared_ptr<FakeDevice::State>;

constexpr std::uint32_t kOfferMagic = 0x454b4146U;  // "FAKE"

/// What an offer says of the link.
struct OfferBytes {
    std::uint32_t magic = kOfferMagic;
    std::uint32_t transport = 0;
    std::uint32_t slots = 0;
    std::uint64_t slot_bytes = 0;
};

/// The order of tensors on their way, and in front of each its slot and size.
struct WireHeader {
    std::atomic<std::uint64_t> sent;      // by the producer, release: the tensor is complete
    std::atomic<std::uint64_t> received;  // by the consumer, release: its place may be used again
};
struct WireEntry {
    std::uint32_t index;
    std::uint64_t bytes;
};

Error failed(const LinkSpec& spec, const char* what) {
    return {Errc::System, std::string{"fake device, "} + spec.name + ": " + what};
}

/// A mapping of a memfd.
class Mapping {
public:
    Mapping() = default;
    Mapping(int fd, std::size_t bytes) : bytes_{bytes} {
        void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (at != MAP_FAILED) data_ = static_cast<std::byte*>(at);
    }
    Mapping(Mapping&& other) noexcept
        : data_{std::exchange(other.data_, nullptr)}, bytes_{other.bytes_} {}
    Mapping& operator=(Mapping&&) = delete;
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    ~Mapping() {
        if (data_ != nullptr) ::munmap(data_, bytes_);
    }
    [[nodiscard]] std::byte* data() const { return data_; }

private:
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
};

std::size_t entry_stride(const LinkSpec& spec) {
    return (sizeof(WireEntry) + spec.slot_bytes + 63) / 64 * 64;
}

std::size_t mapping_bytes(Transport transport, const LinkSpec& spec) {
    if (transport == Transport::Exported) return spec.slots * spec.slot_bytes;
    return 64 + spec.slots * entry_stride(spec);
}

/// What both ends have: the switches, the mapping, and being known to nudge().
template <class Link>
class FakeEnd : public Link {
public:
    FakeEnd(State state, Transport transport, LinkSpec spec, Mapping mapping)
        : state_{std::move(state)},
          transport_{transport},
          spec_{std::move(spec)},
          mapping_{std::move(mapping)},
          own_(transport == Transport::Nccl ? spec_.slots * spec_.slot_bytes : 0) {
        const std::lock_guard lock{state_->mutex};
        state_->specs.push_back(&spec_);
        ++state_->counts.links;
    }
    ~FakeEnd() override {
        const std::lock_guard lock{state_->mutex};
        std::erase(state_->specs, &spec_);
        --state_->counts.links;
    }
    [[nodiscard]] Result<LinkState> poll() override {
        if (state_->may.polling_fails) return failed(spec_, "the device says no");
        return state_->may.may_open ? LinkState::Open : LinkState::Connecting;
    }
    [[nodiscard]] std::byte* slot(std::uint32_t index) override {
        PACE_CHECK(index < spec_.slots, "a slot of a fake link that does not exist");
        std::byte* base = own_.empty() ? mapping_.data() : own_.data();
        return base + index * spec_.slot_bytes;
    }

protected:
    [[nodiscard]] WireHeader& wire() { return *reinterpret_cast<WireHeader*>(mapping_.data()); }
    [[nodiscard]] std::byte* entry(std::uint64_t number) {
        return mapping_.data() + 64 + number % spec_.slots * entry_stride(spec_);
    }
    State state_;
    Transport transport_;
    LinkSpec spec_;
    Mapping mapping_;
    std::vector<std::byte> own_;  // slots of this end
};

class FakeOut final : public FakeEnd<OutLink> {
public:
    using FakeEnd::FakeEnd;
    void send(std::uint32_t index, std::size_t bytes) override {
        ++state_->counts.sent;
        if (transport_ != Transport::Nccl) return;
        const std::uint64_t number = wire().sent.load(std::memory_order_relaxed);
        // A slot is acquired again only after its tensor was released, so there is a place.
        PACE_CHECK(number - wire().received.load(std::memory_order_acquire) < spec_.slots,
                   "more tensors on their way than slots");
        const WireEntry head{index, bytes};
        std::memcpy(entry(number), &head, sizeof head);
        std::memcpy(entry(number) + sizeof head, slot(index), bytes);
        wire().sent.store(number + 1, std::memory_order_release);
    }
    [[nodiscard]] bool reusable(std::uint32_t /*index*/) override { return state_->may.may_reuse; }
};

class FakeIn final : public FakeEnd<InLink> {
public:
    FakeIn(State state, Transport transport, LinkSpec spec, Mapping mapping)
        : FakeEnd{std::move(state), transport, std::move(spec), std::move(mapping)},
          waiting_(spec_.slots, false) {
        if (transport_ == Transport::Nccl) thread_ = std::thread{[this] { watch(); }};
    }
    ~FakeIn() override {
        ends_ = true;
        if (thread_.joinable()) thread_.join();
    }
    void expect(std::uint32_t index, std::size_t bytes) override {
        ++state_->counts.expected;
        if (transport_ != Transport::Nccl) return;
        waiting_[index] = true;
        expected_.push_back({index, bytes});
    }
    [[nodiscard]] bool arrived(std::uint32_t index) override {
        if (!state_->may.may_arrive) return false;
        if (transport_ != Transport::Nccl) return true;
        while (!expected_.empty() && receive(expected_.front())) expected_.pop_front();
        return !waiting_[index];
    }

private:
    bool receive(const WireEntry& wanted) {
        const std::uint64_t number = wire().received.load(std::memory_order_relaxed);
        if (wire().sent.load(std::memory_order_acquire) == number) return false;
        WireEntry head{};
        std::memcpy(&head, entry(number), sizeof head);
        if (head.bytes != wanted.bytes || head.index != wanted.index) ++state_->counts.mismatches;
        std::memcpy(slot(wanted.index), entry(number) + sizeof head, wanted.bytes);
        wire().received.store(number + 1, std::memory_order_release);
        waiting_[wanted.index] = false;
        return true;
    }
    void watch() {
        std::uint64_t seen = 0;
        while (!ends_) {
            const std::uint64_t sent = wire().sent.load(std::memory_order_acquire);
            if (std::exchange(seen, sent) != sent) spec_.wake();
            std::this_thread::sleep_for(std::chrono::microseconds{200});
        }
    }
    std::vector<bool> waiting_;  // by slot: expected and not there
    std::deque<WireEntry> expected_;
    std::atomic<bool> ends_{false};
    std::thread thread_;
};

}  // namespace

FakeDevice::FakeDevice() : state_{std::make_shared<State>()} {}

void FakeDevice::nudge() {
    const std::lock_guard lock{state_->mutex};
    for (const LinkSpec* spec : state_->specs) spec->wake();
}

Result<std::shared_ptr<std::byte>> FakeDevice::allocate(std::size_t bytes) {
    if (state_->may.out_of_memory) return Error{Errc::OutOfMemory, "the fake device is full"};
    return std::shared_ptr<std::byte>{new std::byte[bytes](), std::default_delete<std::byte[]>{}};
}

Result<std::unique_ptr<InLink>> FakeDevice::open_in(Transport transport,
                                                    LinkSpec spec,
                                                    LinkOffer& offer) {
    if (state_->may.opening_fails) return failed(spec, "it cannot be opened");
    ++state_->counts.opened_in;
    OwnedFd file{::memfd_create("fake-device", MFD_CLOEXEC)};
    const std::size_t bytes = mapping_bytes(transport, spec);
    if (!file || ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) {
        return failed(spec, "memfd_create");
    }
    Mapping mapping{file.get(), bytes};
    if (mapping.data() == nullptr) return failed(spec, "mmap");
    const OfferBytes head{.transport = static_cast<std::uint32_t>(transport),
                          .slots = spec.slots,
                          .slot_bytes = spec.slot_bytes};
    offer.bytes.resize(sizeof head);
    std::memcpy(offer.bytes.data(), &head, sizeof head);
    offer.files.push_back(std::move(file));
    return std::unique_ptr<InLink>{
        std::make_unique<FakeIn>(state_, transport, std::move(spec), std::move(mapping))};
}

Result<std::unique_ptr<OutLink>> FakeDevice::open_out(Transport transport,
                                                      LinkSpec spec,
                                                      LinkOffer offer) {
    if (state_->may.opening_fails) return failed(spec, "it cannot be opened");
    ++state_->counts.opened_out;
    OfferBytes head{};
    if (offer.bytes.size() == sizeof head) {
        std::memcpy(&head, offer.bytes.data(), sizeof head);
    } else {
        head.magic = 0;
    }
    if (head.magic != kOfferMagic || head.transport != static_cast<std::uint32_t>(transport) ||
        head.slots != spec.slots || head.slot_bytes != spec.slot_bytes || offer.files.size() != 1) {
        return Error{Errc::Protocol, spec.name + ": not an offer of this link"};
    }
    Mapping mapping{offer.files[0].get(), mapping_bytes(transport, spec)};
    if (mapping.data() == nullptr) return failed(spec, "mmap");
    return std::unique_ptr<OutLink>{
        std::make_unique<FakeOut>(state_, transport, std::move(spec), std::move(mapping))};
}

}  // namespace paceline::testing
