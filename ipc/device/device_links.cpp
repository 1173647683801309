#include "ipc/device/device_links.hpp"

#include <fmt/core.h>
#include <utility>

#include "ipc/device/device_memory.hpp"
#include "ipc/device/exported_link.hpp"
#include "ipc/device/nccl_link.hpp"

namespace paceline {
namespace {

Error no_link(Transport transport, const LinkSpec& spec) {
    return {Errc::BadArgument,
            fmt::format("{}: transport {} has no link", spec.name, static_cast<int>(transport))};
}

class LinkDevice final : public TensorDevice {
public:
    LinkDevice(std::shared_ptr<Driver> driver, DeviceSettings settings)
        : settings_{std::move(settings)} {
        nccl_.driver = std::move(driver);
    }

    Result<std::shared_ptr<std::byte>> allocate(std::size_t bytes) override {
        if (Status entered = driver().enter(); !entered) return entered.error();
        Result<DeviceMemoryBlock> made = DeviceMemoryBlock::create(driver(), bytes);
        if (!made) return made.error();
        struct Owner {  // the block goes before its driver
            std::shared_ptr<Driver> driver;
            DeviceMemoryBlock block;
        };
        auto owner = std::make_shared<Owner>(Owner{nccl_.driver, std::move(made).value()});
        return std::shared_ptr<std::byte>{owner, owner->block.data()};
    }

    Result<std::unique_ptr<InLink>> open_in(Transport transport,
                                            LinkSpec spec,
                                            LinkOffer& offer) override {
        if (transport == Transport::Exported) return open_exported_in(driver(), spec, offer);
        if (transport != Transport::Nccl) return no_link(transport, spec);
        if (Status ready = prepare_nccl(); !ready) return ready.error();
        return open_nccl_in(nccl_, std::move(spec), offer);
    }

    Result<std::unique_ptr<OutLink>> open_out(Transport transport,
                                              LinkSpec spec,
                                              LinkOffer offer) override {
        if (transport == Transport::Exported) return open_exported_out(driver(), spec, offer);
        if (transport != Transport::Nccl) return no_link(transport, spec);
        if (Status ready = prepare_nccl(); !ready) return ready.error();
        return open_nccl_out(nccl_, std::move(spec), std::move(offer));
    }

    Status health() override { return nccl_.issuer != nullptr ? nccl_.issuer->health() : Status{}; }

private:
    [[nodiscard]] Driver& driver() const { return *nccl_.driver; }

    Status prepare_nccl() {
        if (nccl_.issuer != nullptr) return {};
        Result<std::shared_ptr<Nccl>> library = open_nccl(settings_.nccl_library);
        if (!library) return library.error();
        nccl_.nccl = library.value();
        nccl_.issuer = std::make_shared<NcclIssuer>(nccl_.driver, nccl_.nccl);
        return {};
    }

    DeviceSettings settings_;
    NcclDevice nccl_;
};

}  // namespace

Result<std::unique_ptr<TensorDevice>> make_tensor_device(int device,
                                                         const DeviceSettings& settings) {
    Result<std::unique_ptr<Driver>> driver = open_driver(device);
    if (!driver) return driver.error();
    if (Status entered = driver.value()->enter(); !entered) return entered.error();
    return std::unique_ptr<TensorDevice>{new LinkDevice{std::move(driver).value(), settings}};
}

LinkAbilities link_abilities(int device, const DeviceSettings& settings) {
    LinkAbilities abilities;
    Status exports = exports_memory(device);
    abilities.exported = exports.ok();
    if (!exports) abilities.why_no_exported = exports.error().what;
    Result<std::shared_ptr<Nccl>> library = open_nccl(settings.nccl_library);
    abilities.nccl = library.ok();
    if (!library) abilities.why_no_nccl = library.error().what;
    return abilities;
}

}  // namespace paceline
