#include "ipc/device/exported_link.hpp"

#include <array>
#include <cstring>
#include <fmt/core.h>
#include <optional>
#include <random>
#include <type_traits>
#include <utility>

#include "ipc/device/device_memory.hpp"
#include "ipc/device/slot_layout.hpp"

namespace paceline {
namespace {

constexpr std::uint64_t kExportedMagic = 0x58454b4e4c4350ULL;  // "PCLNKEX"
constexpr std::size_t kProofBytes = 4096;
constexpr std::size_t kProofWords = kProofBytes / 2 / sizeof(std::uint64_t);  // of each end

struct ExportedOffer {
    std::uint64_t magic;
    std::uint64_t slots;
    std::uint64_t slot_bytes;
    std::uint64_t block_bytes;
    std::uint64_t number;  // drawn for this offer
    DeviceUuid device;
};
static_assert(std::is_trivially_copyable_v<ExportedOffer>);

enum class End : std::uint64_t { Consumer = 0, Producer = 1 };
using Proof = std::array<std::uint64_t, kProofWords>;

Proof proof_of(std::uint64_t number, End end) {
    Proof words{};
    std::uint64_t word = number ^ (static_cast<std::uint64_t>(end) + 1);
    for (std::uint64_t& to : words)
        to = word = word * 6364136223846793005ULL + 1442695040888963407ULL;
    return words;
}

Error failed(const LinkSpec& spec, const char* operation, const Error& error) {
    return {error.code, fmt::format("exported link {}: {}: {}", spec.name, operation, error.what)};
}

/// What both ends have: the block and its proof page.
struct Block {
    Driver& driver;
    LinkSpec spec;
    DeviceMemoryBlock memory;
    std::uint64_t number = 0;

    [[nodiscard]] std::byte* slot(std::uint32_t index) const {
        PACE_CHECK(index < spec.slots, "a slot that the link does not have");
        return memory.data() + index * slot_stride(spec.slot_bytes);
    }
    [[nodiscard]] std::byte* proof(End end) const {
        return memory.data() + spec.slots * slot_stride(spec.slot_bytes) +
               static_cast<std::size_t>(end) * (kProofBytes / 2);
    }
    [[nodiscard]] Status write_proof(End end) {
        const Proof words = proof_of(number, end);
        return driver.write(proof(end), words.data(), sizeof(words));
    }
    /// Whether the words are there. Errors: those of the copy.
    [[nodiscard]] Result<bool> proven(End end) {
        Proof words{};
        if (Status got = driver.read(words.data(), proof(end), sizeof(words)); !got) {
            return got.error();
        }
        return words == proof_of(number, end);
    }
};

class ExportedIn final : public InLink {
public:
    explicit ExportedIn(Block block) : block_{std::move(block)} {}

    Result<LinkState> poll() override {
        if (error_) return *error_;
        return LinkState::Open;
    }
    std::byte* slot(std::uint32_t index) override { return block_.slot(index); }
    void expect(std::uint32_t index, std::size_t bytes) override {
        static_cast<void>(index);
        if (bytes > block_.spec.slot_bytes) {
            error_ = Error{Errc::Protocol,
                           fmt::format("exported link {}: a tensor of {} bytes, slots have {}",
                                       block_.spec.name, bytes, block_.spec.slot_bytes)};
        }
    }
    bool arrived(std::uint32_t index) override {
        static_cast<void>(index);
        if (!proven_ && !error_) look_for_proof();
        return proven_ && !error_;
    }

private:
    void look_for_proof() {
        const char* what = "looking for what the producer's device wrote";
        if (Status entered = block_.driver.enter(); !entered) {
            error_ = failed(block_.spec, what, entered.error());
            return;
        }
        Result<bool> there = block_.proven(End::Producer);
        if (!there) {
            error_ = failed(block_.spec, what, there.error());
        } else if (!there.value()) {
            error_ = failed(block_.spec, what,
                            {Errc::System,
                             "it is not in the memory; use another transport between these "
                             "devices, or turn off the IOMMU and ACS"});
        } else {
            proven_ = true;
        }
    }

    Block block_;
    bool proven_ = false;
    std::optional<Error> error_;
};

class ExportedOut final : public OutLink {
public:
    explicit ExportedOut(Block block) : block_{std::move(block)} {}

    Result<LinkState> poll() override { return LinkState::Open; }
    std::byte* slot(std::uint32_t index) override { return block_.slot(index); }
    void send(std::uint32_t index, std::size_t bytes) override {
        PACE_CHECK(index < block_.spec.slots && bytes <= block_.spec.slot_bytes,
                   "a tensor that its slot cannot hold");
    }
    bool reusable(std::uint32_t index) override {
        static_cast<void>(index);
        return true;
    }

private:
    Block block_;
};

Result<ExportedOffer> read_offer(const LinkSpec& spec, const LinkOffer& offer) {
    ExportedOffer said{};
    if (offer.bytes.size() != sizeof(said) || offer.files.size() != 1) {
        return Error{Errc::Protocol,
                     fmt::format("exported link {}: an offer of {} bytes and {} descriptors",
                                 spec.name, offer.bytes.size(), offer.files.size())};
    }
    std::memcpy(&said, offer.bytes.data(), sizeof(said));
    const std::size_t needed = slots_bytes(spec.slots, spec.slot_bytes) + kProofBytes;
    if (said.magic != kExportedMagic || said.slots != spec.slots ||
        said.slot_bytes != spec.slot_bytes || said.block_bytes < needed ||
        said.block_bytes > 2 * needed + kOfferSlackMax) {
        return Error{Errc::Protocol,
                     fmt::format("exported link {}: the offer has {} slots of {} bytes in {}, "
                                 "the edge {} of {} (magic {:x})",
                                 spec.name, said.slots, said.slot_bytes, said.block_bytes,
                                 spec.slots, spec.slot_bytes, said.magic)};
    }
    return said;
}

std::uint64_t draw_number() {
    std::random_device source;
    return (std::uint64_t{source()} << 32U) | source();
}

}  // namespace

Result<std::unique_ptr<InLink>> open_exported_in(Driver& driver,
                                                 const LinkSpec& spec,
                                                 LinkOffer& offer) {
    if (Status entered = driver.enter(); !entered) return failed(spec, "context", entered.error());
    Result<DeviceMemoryBlock> memory =
        DeviceMemoryBlock::create(driver, slots_bytes(spec.slots, spec.slot_bytes) + kProofBytes);
    if (!memory) return failed(spec, "memory of the slots", memory.error());
    Result<OwnedFd> file = memory.value().export_file();
    if (!file) return failed(spec, "export", file.error());
    Block block{driver, spec, std::move(memory).value(), draw_number()};
    if (Status proof = block.write_proof(End::Consumer); !proof) {
        return failed(spec, "proof page", proof.error());
    }
    const ExportedOffer said{.magic = kExportedMagic,
                             .slots = spec.slots,
                             .slot_bytes = spec.slot_bytes,
                             .block_bytes = block.memory.bytes(),
                             .number = block.number,
                             .device = driver.uuid()};
    offer.bytes.resize(sizeof(said));
    std::memcpy(offer.bytes.data(), &said, sizeof(said));
    offer.files.clear();
    offer.files.push_back(std::move(file).value());
    return std::unique_ptr<InLink>{new ExportedIn{std::move(block)}};
}

Result<std::unique_ptr<OutLink>> open_exported_out(Driver& driver,
                                                   const LinkSpec& spec,
                                                   const LinkOffer& offer) {
    Result<ExportedOffer> said = read_offer(spec, offer);
    if (!said) return said.error();
    if (Status entered = driver.enter(); !entered) return failed(spec, "context", entered.error());
    if (Status reached = driver.reaches(said.value().device); !reached) {
        return failed(spec, "peer access", reached.error());
    }
    Result<DeviceMemoryBlock> memory =
        DeviceMemoryBlock::import(driver, offer.files.front(), said.value().block_bytes);
    if (!memory) return failed(spec, "import", memory.error());
    Block block{driver, spec, std::move(memory).value(), said.value().number};
    for (const End end : {End::Consumer, End::Producer}) {
        if (end == End::Producer) {
            if (Status wrote = block.write_proof(end); !wrote) {
                return failed(spec, "proof page", wrote.error());
            }
        }
        Result<bool> there = block.proven(end);
        if (!there) return failed(spec, "proof page", there.error());
        if (!there.value()) {
            return failed(spec, "proof page",
                          {Errc::Unsupported, "this device does not read what was written there"});
        }
    }
    return std::unique_ptr<OutLink>{new ExportedOut{std::move(block)}};
}

}  // namespace paceline
