// The libraries that are loaded at run time: found, or missed by name. Needs no GPU.

#include <doctest/doctest.h>

#include "ipc/device/device_links.hpp"
#include "ipc/device/nccl.hpp"

using namespace paceline;

namespace {

bool mentions(const Error& error, const char* words) {
    return error.what.find(words) != std::string::npos;
}

}  // namespace

TEST_CASE("a library that is named and missing is the answer, whatever lies elsewhere") {
    const auto library = open_nccl("/nowhere/libnccl.so.2");
    REQUIRE_FALSE(library.ok());
    CHECK(library.error().code == Errc::Unsupported);
    CHECK(mentions(library.error(), "/nowhere/libnccl.so.2"));
    const LinkAbilities abilities = link_abilities(0, {.nccl_library = "/nowhere/libnccl.so.2"});
    CHECK_FALSE(abilities.nccl);
    CHECK(abilities.why_no_nccl == library.error().what);
}

TEST_CASE("a library that is not NCCL is refused with what it lacks") {
    const auto library = open_nccl("libm.so.6");
    REQUIRE_FALSE(library.ok());
    CHECK(mentions(library.error(), "libm.so.6 has no nccl"));
}

TEST_CASE("NCCL is found, or what to do is said") {
    const auto library = open_nccl("");
    if (!library) {
        CHECK(library.error().code == Errc::Unsupported);
        CHECK(mentions(library.error(), "PACELINE_NCCL_LIBRARY"));
        return;
    }
    MESSAGE("NCCL " << nccl_version_text(library.value()->version()));
    CHECK(library.value()->version() >= kNcclVersionMin);
    CHECK(open_nccl("").value() == library.value());
}

TEST_CASE("without a driver a device says so") {
    const auto device = make_tensor_device(1000);  // no machine has it
    REQUIRE_FALSE(device.ok());
    CHECK(device.error().code == Errc::Unsupported);
    CHECK_FALSE(link_abilities(1000).exported);
    CHECK(link_abilities(1000).why_no_exported == device.error().what);
    CHECK_FALSE(device.error().what.empty());
}
