// A file that is opened early and written late: what is left where the writing never came.
#include "launch/base/output_file.hpp"

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include <doctest/doctest.h>

#include "tests/support/test_folder.hpp"

namespace paceline {
namespace {

namespace fs = std::filesystem;

std::string content(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
}

}  // namespace

TEST_CASE("an output that is never written leaves no file behind, one that is written stays") {
    const test::TestFolder folder;
    const fs::path path = folder.path() / "out.json";
    {
        Result<OutputFile> file = OutputFile::open(path.string(), "--out");
        REQUIRE(file.ok());
        std::optional<OutputFile> moved = std::move(file).value();
        CHECK(fs::exists(path));
    }
    CHECK_FALSE(fs::exists(path));
    {
        Result<OutputFile> file = OutputFile::open(path.string(), "--out");
        REQUIRE(file.ok());
        CHECK(file.value().write("text").ok());
    }
    CHECK(content(path) == "text");
    CHECK(OutputFile::open(path.string(), "--out").ok());
    CHECK(fs::exists(path));  // it was there before
}

TEST_CASE("an output removes nothing but the file that it made") {
    const test::TestFolder folder;
    const fs::path path = folder.path() / "out.json";
    const fs::path other = folder.path() / "other.json";
    {
        Result<OutputFile> file = OutputFile::open(path.string(), "--out");
        REQUIRE(file.ok());
        std::ofstream(other) << "another";
        fs::rename(other, path);
    }
    CHECK(content(path) == "another");
    fs::create_symlink("missing", folder.path() / "link");
    CHECK(OutputFile::open((folder.path() / "link").string(), "--out").ok());
    CHECK(fs::is_symlink(folder.path() / "link"));
    const Result<OutputFile> nowhere = OutputFile::open("/nonexistent/x", "--out");
    REQUIRE_FALSE(nowhere.ok());
    CHECK(nowhere.error().what ==
          "--out: /nonexistent/x cannot be written: No such file or directory");
}

}  // namespace paceline
