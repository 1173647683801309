// docs/wire-format.md, "Between machines", against the code: the kinds and where they travel, the
// version, and the bytes of the example.
#include <cstdio>
#include <fmt/core.h>
#include <fstream>
#include <iterator>
#include <string>

#include <doctest/doctest.h>

#include "ipc/remote/node_frames.hpp"
#include "tests/support/source_tree.hpp"

using namespace paceline;
using namespace paceline::remote;

namespace {

std::string section() {
    std::ifstream file{testing::source_tree() + "/docs/wire-format.md"};
    const std::string page{std::istreambuf_iterator<char>{file}, std::istreambuf_iterator<char>{}};
    const std::size_t begin = page.find("\n## Between machines\n");
    REQUIRE(begin != std::string::npos);
    return page.substr(begin);
}

bool carries(std::uint16_t kind, Channel channel) {
    return body_bytes_max(kind, channel) != 0;
}

}  // namespace

TEST_CASE("the page names every kind of frame with its number and its connection") {
    const std::string page = section();
    std::uint16_t kind = 1;
    for (; carries(kind, Channel::Main) || carries(kind, Channel::Bulk); ++kind) {
        const char* where = !carries(kind, Channel::Main)   ? "bulk"
                            : !carries(kind, Channel::Bulk) ? "main"
                                                            : "both";
        const std::string row =
            fmt::format("\n| {} | {} | {} | ", kind, name_of(static_cast<Kind>(kind)), where);
        CAPTURE(row);
        CHECK(page.find(row) != std::string::npos);
    }
    CHECK(page.find(fmt::format("\n| {} | ", kind)) == std::string::npos);
}

TEST_CASE(
    "the page tells the version, the longest part and the longest Begin of the main connection") {
    const std::string page = section();
    CHECK(page.find(fmt::format("`ipc/remote/node_frames.hpp:kNodeVersion`) is {}.",
                                kNodeVersion)) != std::string::npos);
    CHECK(page.find(fmt::format("at most {} KiB of the slot", kPartBytesMax / 1024)) !=
          std::string::npos);
    CHECK(page.find(fmt::format("a Begin of more than {} KiB on Bulk",
                                kMainBeginBytesMax / 1024)) != std::string::npos);
}

TEST_CASE("the example's bytes are those of the code") {
    std::vector<std::byte> bytes;
    append_frame(bytes, LeaseAsk{7, 1'000'000'000}, Epoch{2}, build_of("example"), Channel::Main);
    const std::string page = section();
    for (std::size_t at = 0; at < bytes.size(); at += 16) {
        std::string line = fmt::format("\n{:3} ", at);
        for (std::size_t i = at; i < bytes.size() && i < at + 16; ++i) {
            line += fmt::format(" {:02x}", std::to_integer<unsigned>(bytes[i]));
        }
        CAPTURE(line);
        CHECK(page.find(line) != std::string::npos);
    }
}
