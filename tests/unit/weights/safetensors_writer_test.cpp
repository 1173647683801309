// The safetensors writer: the reader finds again what was written, and half a file has no name.
#include "model/weights/safetensors_writer.hpp"

#include <filesystem>
#include <string>
#include <unistd.h>

#include <doctest/doctest.h>

namespace paceline {
namespace {

struct Folder {
    std::filesystem::path path = std::filesystem::temp_directory_path() /
                                 ("paceline-writer-test-" + std::to_string(getpid()));
    Folder() { std::filesystem::create_directories(path); }
    ~Folder() { std::filesystem::remove_all(path); }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
};

TEST_CASE("the reader finds again what was written, in pieces of any size") {
    const Folder folder;
    const std::string path = folder.path / "some.safetensors";
    const std::map<std::string, std::string> metadata{
        {"plain", "text"}, {"odd \"\\\n\x01\xc3\xa9", "C:\\new\t\"line\""}, {"empty", ""}};
    const std::vector<SafetensorsEntry> entries{{"begins", SafetensorsType::I64, {3}},
                                                {"rows", SafetensorsType::F16, {2, 3}},
                                                {"none", SafetensorsType::I32, {0, 7}},
                                                {"one", SafetensorsType::F32, {}}};
    const std::vector<std::int64_t> begins{0, 5, -1};
    const std::vector<std::uint16_t> first{1, 2};
    const std::vector<std::uint16_t> rest{3, 4, 5, 65535};
    const std::vector<float> one{2.5f};
    Result<SafetensorsWriter> writer = SafetensorsWriter::create(path, entries, metadata);
    REQUIRE(writer.ok());
    CHECK(writer.value().append(begins).ok());
    CHECK(writer.value().append(first).ok());
    CHECK(writer.value().append(rest).ok());
    CHECK(writer.value().append(one).ok());
    CHECK_FALSE(std::filesystem::exists(path));
    CHECK(writer.value().finish().ok());

    const Result<SafetensorsFile> read = SafetensorsFile::open(path);
    REQUIRE_MESSAGE(read.ok(), (read.ok() ? std::string{} : read.error().what));
    CHECK(read.value().contents().metadata == metadata);
    CHECK(read.value().contents().data_start % 8 == 0);
    REQUIRE(read.value().contents().tensors.size() == entries.size());
    const auto bytes_of_tensor = [&](const char* name) {
        const StoredTensor* tensor = read.value().find(name);
        REQUIRE(tensor != nullptr);
        return std::string{reinterpret_cast<const char*>(tensor->bytes.data()),
                           tensor->bytes.size()};
    };
    const std::vector<std::uint16_t> rows{1, 2, 3, 4, 5, 65535};
    CHECK(bytes_of_tensor("rows") ==
          std::string{reinterpret_cast<const char*>(rows.data()), rows.size() * 2});
    CHECK(bytes_of_tensor("begins") ==
          std::string{reinterpret_cast<const char*>(begins.data()), begins.size() * 8});
    CHECK(bytes_of_tensor("none").empty());
    CHECK(read.value().find("rows")->shape == std::vector<std::int64_t>{2, 3});
    CHECK(read.value().find("one")->shape.empty());
    CHECK(read.value().find("rows")->type == SafetensorsType::F16);
}

TEST_CASE("a file that is not finished leaves nothing, and the one before it stays") {
    const Folder folder;
    const std::string path = folder.path / "some.safetensors";
    const std::vector<SafetensorsEntry> entries{{"x", SafetensorsType::U8, {4}}};
    const std::vector<std::uint8_t> bytes{1, 2, 3, 4};
    {
        Result<SafetensorsWriter> writer = SafetensorsWriter::create(path, entries, {{"v", "1"}});
        REQUIRE(writer.ok());
        CHECK(writer.value().append(bytes).ok());
        CHECK(writer.value().finish().ok());
    }
    {
        Result<SafetensorsWriter> writer = SafetensorsWriter::create(path, entries, {{"v", "2"}});
        REQUIRE(writer.ok());
        CHECK(writer.value().append(std::as_bytes(std::span{bytes}).first(2)).ok());
    }
    CHECK(SafetensorsFile::open(path).value().metadata("v") == "1");
    CHECK(std::distance(std::filesystem::directory_iterator{folder.path}, {}) == 1);
}

TEST_CASE("a folder that is not there is named") {
    const Result<SafetensorsWriter> writer =
        SafetensorsWriter::create("/nowhere/some.safetensors", {}, {});
    REQUIRE_FALSE(writer.ok());
    CHECK(writer.error().code == Errc::System);
    CHECK(writer.error().what.find("/nowhere/some.safetensors") == 0);
}

}  // namespace
}  // namespace paceline
