#include "ipc/device/nccl_link.hpp"

#include <cerrno>
#include <cstring>
#include <fmt/core.h>
#include <sys/socket.h>
#include <type_traits>
#include <utility>

#include "ipc/device/nccl_channel.hpp"
#include "ipc/device/slot_layout.hpp"

namespace paceline {
namespace {

constexpr std::uint64_t kNcclMagic = 0x4c434e4b4e4c4350ULL;  // "PCLNKNCL"

struct NcclOffer {
    std::uint64_t magic;
    std::uint64_t slots;
    std::uint64_t slot_bytes;
    std::uint64_t version;
    NcclId id;
};
static_assert(std::is_trivially_copyable_v<NcclOffer>);

Error nccl_failed(const LinkSpec& spec, const char* operation, const Error& error) {
    return {error.code, fmt::format("NCCL link {}: {}: {}", spec.name, operation, error.what)};
}

/// Either end of a link: what is not different.
class NcclEnd {
public:
    NcclEnd(const NcclDevice& device,
            std::string name,
            std::size_t slot_bytes,
            std::shared_ptr<NcclChannel> channel)
        : device_{device},
          name_{std::move(name)},
          slot_bytes_{slot_bytes},
          channel_{std::move(channel)} {
        device_.issuer->add(channel_);
    }
    NcclEnd(const NcclEnd&) = delete;
    NcclEnd& operator=(const NcclEnd&) = delete;
    ~NcclEnd() {
        channel_->close();
        device_.issuer->nudge();
    }

    [[nodiscard]] Result<LinkState> poll() const {
        if (Status healthy = device_.issuer->health(); !healthy) return healthy.error();
        return channel_->poll();
    }
    [[nodiscard]] std::byte* slot(std::uint32_t index) const { return channel_->slot(index); }
    void post(std::uint32_t index, std::size_t bytes) {
        channel_->post(index, bytes);
        device_.issuer->nudge();
    }
    /// The peer's word.
    void expect(std::uint32_t index, std::size_t bytes) {
        if (bytes <= slot_bytes_) return post(index, bytes);
        channel_->refuse(
            {Errc::Protocol, fmt::format("NCCL link {}: a tensor of {} bytes, slots have {}", name_,
                                         bytes, slot_bytes_)});
    }
    [[nodiscard]] bool done(std::uint32_t index) const { return channel_->done(index); }

private:
    NcclDevice device_;
    std::string name_;
    std::size_t slot_bytes_;
    std::shared_ptr<NcclChannel> channel_;
};

class NcclIn final : public InLink {
public:
    template <class... Parts>
    explicit NcclIn(Parts&&... parts) : end_{std::forward<Parts>(parts)...} {}
    Result<LinkState> poll() override { return end_.poll(); }
    std::byte* slot(std::uint32_t index) override { return end_.slot(index); }
    void expect(std::uint32_t index, std::size_t bytes) override { end_.expect(index, bytes); }
    bool arrived(std::uint32_t index) override { return end_.done(index); }

private:
    NcclEnd end_;
};

class NcclOut final : public OutLink {
public:
    template <class... Parts>
    explicit NcclOut(Parts&&... parts) : end_{std::forward<Parts>(parts)...} {}
    Result<LinkState> poll() override { return end_.poll(); }
    std::byte* slot(std::uint32_t index) override { return end_.slot(index); }
    void send(std::uint32_t index, std::size_t bytes) override { end_.post(index, bytes); }
    bool reusable(std::uint32_t index) override { return end_.done(index); }

private:
    NcclEnd end_;
};

/// Slots, stream and events; freed here if one cannot be had, else by the channel.
Status allocate(Driver& driver, NcclChannel::Parts& parts) {
    if (Status entered = driver.enter(); !entered) return entered;
    Result<DeviceMemoryBlock> memory =
        DeviceMemoryBlock::create(driver, slots_bytes(parts.spec.slots, parts.spec.slot_bytes));
    if (!memory) return memory.error();
    Result<DeviceStream> stream = driver.make_stream();
    if (!stream) return stream.error();
    for (std::uint32_t slot = 0; slot < parts.spec.slots; ++slot) {
        Result<DeviceEvent> event = driver.make_event();
        if (!event) {
            for (DeviceEvent made : parts.events) driver.destroy_event(made);
            driver.destroy_stream(stream.value());
            parts.events.clear();
            return event.error();
        }
        parts.events.push_back(event.value());
    }
    parts.memory = std::move(memory).value();
    parts.stream = stream.value();
    return {};
}

template <class End>
std::unique_ptr<End> make_end(const NcclDevice& device, NcclChannel::Parts parts) {
    const std::string name = parts.spec.name;
    const std::size_t slot_bytes = parts.spec.slot_bytes;
    auto channel = std::make_shared<NcclChannel>(std::move(parts));
    return std::make_unique<End>(device, name, slot_bytes, std::move(channel));
}

Result<NcclOffer> read_offer(const NcclDevice& device,
                             const LinkSpec& spec,
                             const LinkOffer& offer) {
    NcclOffer said{};
    if (offer.bytes.size() != sizeof(said) || offer.files.size() != 1) {
        return Error{Errc::Protocol,
                     fmt::format("NCCL link {}: an offer of {} bytes and {} descriptors", spec.name,
                                 offer.bytes.size(), offer.files.size())};
    }
    std::memcpy(&said, offer.bytes.data(), sizeof(said));
    if (said.magic != kNcclMagic || said.slots != spec.slots ||
        said.slot_bytes != spec.slot_bytes) {
        return Error{Errc::Protocol,
                     fmt::format("NCCL link {}: the offer has {} slots of {} bytes, the edge {} of "
                                 "{} (magic {:x})",
                                 spec.name, said.slots, said.slot_bytes, spec.slots,
                                 spec.slot_bytes, said.magic)};
    }
    const auto own = static_cast<std::uint64_t>(device.nccl->version());
    if (said.version != own) {
        return Error{Errc::Unsupported,
                     fmt::format("NCCL link {}: the consumer has loaded NCCL {}, the producer {}",
                                 spec.name, nccl_version_text(static_cast<int>(said.version)),
                                 nccl_version_text(device.nccl->version()))};
    }
    int type = 0;
    socklen_t size = sizeof(type);
    if (::getsockopt(offer.files.front().get(), SOL_SOCKET, SO_TYPE, &type, &size) != 0 ||
        type != SOCK_STREAM) {
        return Error{Errc::Protocol,
                     fmt::format("NCCL link {}: the offer's descriptor is no socket", spec.name)};
    }
    return said;
}

}  // namespace

Result<std::unique_ptr<InLink>> open_nccl_in(const NcclDevice& device,
                                             LinkSpec spec,
                                             LinkOffer& offer) {
    if (Status healthy = device.issuer->health(); !healthy) return healthy.error();
    NcclChannel::Parts parts;
    parts.rank = NcclRank::Consumer;
    parts.spec = std::move(spec);
    int pair[2] = {-1, -1};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        return nccl_failed(parts.spec, "socketpair", {Errc::System, std::strerror(errno)});
    }
    parts.peer.reset(pair[0]);
    OwnedFd theirs{pair[1]};
    if (Status had = allocate(*device.driver, parts); !had) {
        return nccl_failed(parts.spec, "landing slots", had.error());
    }
    if (const NcclResult made = device.nccl->unique_id(parts.id); made != NcclResult::Success) {
        const Error error =
            nccl_failed(parts.spec, "ncclGetUniqueId", {Errc::System, nccl_text(made)});
        for (DeviceEvent event : parts.events) device.driver->destroy_event(event);
        device.driver->destroy_stream(parts.stream);
        return error;
    }
    const NcclOffer said{.magic = kNcclMagic,
                         .slots = parts.spec.slots,
                         .slot_bytes = parts.spec.slot_bytes,
                         .version = static_cast<std::uint64_t>(device.nccl->version()),
                         .id = parts.id};
    offer.bytes.resize(sizeof(said));
    std::memcpy(offer.bytes.data(), &said, sizeof(said));
    offer.files.clear();
    offer.files.push_back(std::move(theirs));
    return std::unique_ptr<InLink>{make_end<NcclIn>(device, std::move(parts))};
}

Result<std::unique_ptr<OutLink>> open_nccl_out(const NcclDevice& device,
                                               LinkSpec spec,
                                               LinkOffer offer) {
    if (Status healthy = device.issuer->health(); !healthy) return healthy.error();
    Result<NcclOffer> said = read_offer(device, spec, offer);
    if (!said) return said.error();
    NcclChannel::Parts parts;
    parts.rank = NcclRank::Producer;
    parts.spec = std::move(spec);
    parts.id = said.value().id;
    parts.peer = std::move(offer.files.front());
    if (Status had = allocate(*device.driver, parts); !had) {
        return nccl_failed(parts.spec, "staging slots", had.error());
    }
    return std::unique_ptr<OutLink>{make_end<NcclOut>(device, std::move(parts))};
}

}  // namespace paceline
