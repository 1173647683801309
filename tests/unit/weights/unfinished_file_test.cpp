// Files that get their name at the end: what is seen before, beside, and after a writer that went
// away.
#include "model/weights/unfinished_file.hpp"

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include <doctest/doctest.h>

#include "tests/support/test_folder.hpp"

namespace paceline {
namespace {

namespace fs = std::filesystem;
using Beside = UnfinishedFile::Beside;

std::string text_in(const fs::path& path) {
    std::ifstream file{path, std::ios::binary};
    return {std::istreambuf_iterator<char>{file}, {}};
}

UnfinishedFile begun(const fs::path& path) {
    Result<UnfinishedFile> file = UnfinishedFile::begin(path.string(), Beside::Wait);
    REQUIRE_MESSAGE(file.ok(), (file.ok() ? "" : file.error().what));
    return std::move(file).value();
}

Status put(UnfinishedFile& file, const std::string& text) {
    return file.append(std::as_bytes(std::span{text}));
}

}  // namespace

TEST_CASE("a file has its old content until it is kept, and no more bytes than were written") {
    const test::TestFolder folder;
    const fs::path path = folder.path() / "some.gguf";
    std::ofstream{path} << "old";
    UnfinishedFile file = begun(path);
    CHECK(file.reserve(4096).ok());
    CHECK(put(file, "new ").ok());
    CHECK(put(file, "content").ok());
    CHECK(file.bytes() == 11);
    CHECK(text_in(path) == "old");
    CHECK(file.sync().ok());
    CHECK(file.keep().ok());
    CHECK(text_in(path) == "new content");
    CHECK_FALSE(fs::exists(path.string() + ".paceline-part"));
}

TEST_CASE("a writer that gives up leaves nothing, and what a killed one left is taken over") {
    const test::TestFolder folder;
    const fs::path path = folder.path() / "some.gguf";
    {
        UnfinishedFile file = begun(path);
        CHECK(put(file, "half").ok());
        CHECK(fs::exists(path.string() + ".paceline-part"));
    }
    CHECK(fs::is_empty(folder.path()));
    std::ofstream{path.string() + ".paceline-part"}
        << "longer than what follows, of a process that was killed";
    UnfinishedFile file = begun(path);
    CHECK(put(file, "whole").ok());
    CHECK(file.keep().ok());
    CHECK(text_in(path) == "whole");
}

TEST_CASE(
    "beside a writer another one is refused by name, or waits and then writes a file of its own") {
    const test::TestFolder folder;
    const fs::path path = folder.path() / "some.gguf";
    UnfinishedFile first = begun(path);
    const Result<UnfinishedFile> refused = UnfinishedFile::begin(path.string(), Beside::Refuse);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().code == Errc::Cancelled);
    CHECK(refused.error().what.find(path.string()) == 0);
    std::string seen;
    std::jthread other{[&] {
        UnfinishedFile second = begun(path);
        seen = text_in(path);
        (void)put(second, "second");
        (void)second.keep();
    }};
    CHECK(put(first, "first").ok());
    CHECK(first.keep().ok());
    other.join();
    CHECK(seen == "first");
    CHECK(text_in(path) == "second");
    CHECK_FALSE(fs::exists(path.string() + ".paceline-part"));
}

TEST_CASE("a folder that is not there is named") {
    const Result<UnfinishedFile> file = UnfinishedFile::begin("/nowhere/x.gguf", Beside::Wait);
    REQUIRE_FALSE(file.ok());
    CHECK(file.error().code == Errc::System);
    CHECK(file.error().what.find("/nowhere/x.gguf.paceline-part cannot be written: No such file") ==
          0);
}

}  // namespace paceline
