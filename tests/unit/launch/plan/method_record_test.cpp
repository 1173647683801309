#include "launch/plan/method_record.hpp"

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <unistd.h>

#include <doctest/doctest.h>

#include "launch/plan/method_history.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

namespace fs = std::filesystem;

/// A cache folder of its own.
struct Folder {
    Folder() : path{fs::temp_directory_path() / ("method-records-" + std::to_string(::getpid()))} {
        fs::remove_all(path);
    }
    ~Folder() { fs::remove_all(path); }
    [[nodiscard]] std::size_t files() const {
        std::size_t count = 0;
        for ([[maybe_unused]] const auto& entry : fs::directory_iterator{path / "methods"}) ++count;
        return count;
    }
    fs::path path;
};

MethodRate rate_of(double gain, double acceptance = 0.0) {
    return {.gain = gain, .acceptance = acceptance, .tokens_per_second = 100 * gain, .runs = 1};
}

MethodRecord record_of(const std::string& method, double gain) {
    MethodRecord record;
    record.add(method, rate_of(gain, 0.5));
    return record;
}

}  // namespace

TEST_CASE("a record is read as it was written, by its own key alone") {
    const Folder folder;
    const MethodRecords records{folder.path.string()};
    CHECK(records.read("a") == MethodRecord{});
    REQUIRE(records.write("a", record_of("pearl", 123.5)));
    CHECK(records.read("a") == record_of("pearl", 123.5));
    CHECK(records.read("b") == MethodRecord{});
    REQUIRE(records.write("a", record_of("fold", 7)));
    CHECK(records.read("a") == record_of("fold", 7));
    CHECK(folder.files() == 1);
}

TEST_CASE("newer runs count more, and what is no rate is ignored") {
    MethodRecord record;
    record.add("pearl", rate_of(1.0));
    record.add("pearl", rate_of(2.0, 0.8));
    CHECK(record.find("pearl")->gain == doctest::Approx(1.2));
    CHECK(record.find("pearl")->tokens_per_second == doctest::Approx(120));
    CHECK(record.find("pearl")->acceptance == doctest::Approx(0.8));
    CHECK(record.find("pearl")->runs == 2);
    for (const double bad : {0.0, -1.0, std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()}) {
        record.add("plain", rate_of(bad));
        CHECK(record.find("plain") == nullptr);
    }
}

TEST_CASE("several runs at once count as much as one after the other") {
    MethodRecord together;
    together.add("pearl", rate_of(1.0));
    MethodRecord apart = together;
    MethodRate three = rate_of(2.0);
    three.runs = 3;
    together.add("pearl", three);
    for (int i = 0; i < 3; ++i) apart.add("pearl", rate_of(2.0));
    CHECK(together.find("pearl")->gain == doctest::Approx(apart.find("pearl")->gain));
    CHECK(together.find("pearl")->runs == 4);
}

TEST_CASE("a damaged file counts as absent, and is replaced") {
    const Folder folder;
    const MethodRecords records{folder.path.string()};
    REQUIRE(records.write("a", record_of("pearl", 100)));
    const fs::path file = fs::directory_iterator {
        folder.path / "methods"
        } -> path();
    for (const std::string& text :
         {std::string{}, std::string{"{"}, std::string{"[]"}, std::string{"{\"format\": 1}"},
          std::string{R"({"format": 2, "key": "a", "methods": {"pearl": 5}})"},
          std::string{R"({"format": 2, "key": "a", "methods": {"pearl":
              {"gain": -1, "acceptance": 0, "tokens_per_second": 1, "runs": 1}}})"},
          std::string{R"({"format": 2, "key": "a", "methods": {"pearl":
              {"gain": 1, "acceptance": 2, "tokens_per_second": 1, "runs": 1}}})"},
          std::string{R"({"format": 1, "key": "a", "methods": {}})"},
          std::string(MethodRecords::kBytesMax + 1, ' ')}) {
        std::ofstream{file, std::ios::trunc} << text;
        CHECK(records.read("a") == MethodRecord{});
    }
    CHECK(records.write("a", record_of("pearl", 90)));
    CHECK(records.read("a") == record_of("pearl", 90));
}

TEST_CASE("old records make room") {
    const Folder folder;
    const MethodRecords records{folder.path.string()};
    for (std::size_t i = 0; i < MethodRecords::kRecordsMax + 10; ++i)
        REQUIRE(records.write(std::to_string(i), record_of("pearl", 1)));
    CHECK(folder.files() == MethodRecords::kRecordsMax);
}

TEST_CASE("without a folder, or where none can be made, nothing is remembered") {
    const MethodRecords none{""};
    CHECK_FALSE(none.write("a", record_of("pearl", 1)));
    CHECK(none.read("a") == MethodRecord{});
    const MethodRecords refused{"/proc/no/such/folder"};
    CHECK_FALSE(refused.write("a", record_of("pearl", 1)));
    CHECK(refused.read("a") == MethodRecord{});
}

TEST_CASE("full batches, a server's requests and single ones have records of their own") {
    const Folder folder;
    const Result<ModelFile> file = ModelFile::open(PACELINE_FIXTURES "/models/tiny-chat.gguf");
    REQUIRE(file.ok());
    using Batches = MethodHistory::Batches;
    const auto history = [&](int requests, Batches batches) {
        return MethodHistory{
            file.value(), {}, "", folder.path.string(), {.requests = requests, .batches = batches}};
    };
    history(4, Batches::AsTheyCome).add("prompt-lookup", rate_of(2.0));
    CHECK(history(4, Batches::AsTheyCome).gain_of("prompt-lookup") == 2.0);
    CHECK(history(4, Batches::Full).gain_of("prompt-lookup") == 0.0);
    CHECK(history(4, Batches::Full).choose_for_batches("plain").method == "plain");
    history(4, Batches::Full).add("prompt-lookup", rate_of(1.5));
    CHECK(history(4, Batches::Full).gain_of("prompt-lookup") == 1.5);
    CHECK(history(4, Batches::AsTheyCome).gain_of("prompt-lookup") == 2.0);
    history(1, Batches::AsTheyCome).add("prompt-lookup", rate_of(3.0));
    CHECK(history(1, Batches::Full).gain_of("prompt-lookup") == 3.0);
}

TEST_CASE(
    "drawn texts have a record of their own, and go by greedy ones before it has the method") {
    const Folder folder;
    const Result<ModelFile> file = ModelFile::open(PACELINE_FIXTURES "/models/tiny-chat.gguf");
    REQUIRE(file.ok());
    const auto history = [&](bool drawn, int requests = 1) {
        return MethodHistory{
            file.value(), {}, "", folder.path.string(), {.requests = requests, .drawn = drawn}};
    };
    for (const char* method : {"prompt-lookup", "prompt-lookup+draft"})
        history(false).add(method, {.gain = 1.4, .tokens_per_second = 100.0, .runs = 3});
    CHECK(history(true).choose("plain").method == "prompt-lookup+draft");
    for (const char* method : {"prompt-lookup", "prompt-lookup+draft"})
        history(true).add(method, {.gain = 0.9, .tokens_per_second = 100.0, .runs = 3});
    CHECK(history(true).choose("plain").method == "plain");
    CHECK(history(true, 4).choose("plain").method == "plain");
    CHECK(history(false).choose("plain").method == "prompt-lookup+draft");
}

TEST_CASE("a method of the record whose part is gone is not chosen") {
    const Folder folder;
    const Result<ModelFile> file = ModelFile::open(PACELINE_FIXTURES "/models/tiny-chat.gguf");
    REQUIRE(file.ok());
    MethodHistory history{file.value(), {}, "", folder.path.string(), {}};
    for (const char* first : {"prompt-lookup", "prompt-lookup+draft"})
        history.add(first, {.gain = 1.0, .tokens_per_second = 100.0, .runs = 3});
    history.add("medusa", {.gain = 1.4, .tokens_per_second = 140.0, .runs = 3});
    history.add("pearl", {.gain = 1.2, .tokens_per_second = 120.0, .runs = 3});
    CHECK(history.choose("plain").method == "medusa");
    int asked = 0;
    history.leave_out_if([&](const std::string& method) {
        ++asked;
        return method == "medusa";
    });
    CHECK(history.choose("plain").method == "pearl");
    CHECK(asked == 4);  // those of the record
}
