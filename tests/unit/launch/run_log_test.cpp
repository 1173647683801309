// Which lines of a stage reach stderr without --log and --verbose.
#include "launch/base/run_log.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <unistd.h>

#include <doctest/doctest.h>

#include "tests/support/captured_stderr.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test file
using testing::stderr_of;

namespace {

struct LogFile {
    ~LogFile() { std::filesystem::remove(path); }
    [[nodiscard]] std::string text() const {
        std::ifstream file{path};
        return {std::istreambuf_iterator<char>{file}, {}};
    }
    std::string path =
        std::filesystem::temp_directory_path() / ("run_log_test." + std::to_string(::getpid()));
};

void write_lines(RunLog& log) {
    log.stage_line("draft", "draft[7] info: wired");
    log.stage_line("draft", "draft[7] warning: the disk is full");
    log.stage_line("draft", "some library: warning: not ours");
    log.stage_line("draft", "draft[7] error: the stage ended");
}

std::string line_with(const std::string& text, const std::string& part) {
    const std::size_t at = text.find(part);
    if (at == std::string::npos) return {};
    const std::size_t begin = text.rfind('\n', at) + 1;
    return text.substr(begin, text.find('\n', at) - begin);
}

}  // namespace

TEST_CASE("without a log only a stage's warnings are written to stderr") {
    int wiped = 0;
    CHECK(stderr_of([&] {
              RunLog log;
              log.before_news([&] { ++wiped; });
              write_lines(log);
          }) == "paceline: draft[7] warning: the disk is full\n");
    CHECK(wiped == 1);
}

TEST_CASE(
    "with a log file a stage's warnings are on stderr too, and the file has every line once") {
    const LogFile file{.path = "run_log_test.log." + std::to_string(::getpid())};
    const std::string shown = stderr_of([&] {
        RunLog log = RunLog::open(file.path, false).value();
        write_lines(log);
    });
    const std::string text = file.text();
    CHECK(shown == "paceline: draft[7] warning: the disk is full\n");
    CHECK(line_with(text, "wired").ends_with(" draft[7] info: wired"));
    CHECK(line_with(text, "not ours").ends_with(" draft: some library: warning: not ours"));
    CHECK(text.find("the disk is full") == text.rfind("the disk is full"));
    CHECK(text.find("the disk is full") != std::string::npos);
}

TEST_CASE("with --verbose a stage's warning is on stderr once") {
    const std::string shown = stderr_of([] {
        RunLog log = RunLog::open("", true).value();
        write_lines(log);
    });
    CHECK(shown.find("the disk is full") != std::string::npos);
    CHECK(shown.find("the disk is full") == shown.rfind("the disk is full"));
}
