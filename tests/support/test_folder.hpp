// TestFolder: a folder for the files of one test, in the system's folder for temporary files. It is
// removed with all that is in it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <unistd.h>

namespace paceline::test {

class TestFolder {
public:
    TestFolder() {
        std::string pattern =
            (std::filesystem::temp_directory_path() / "paceline-test-XXXXXX").string();
        if (::mkdtemp(pattern.data()) == nullptr) std::abort();
        path_ = pattern;
    }
    TestFolder(const TestFolder&) = delete;
    TestFolder& operator=(const TestFolder&) = delete;
    ~TestFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    [[nodiscard]] const std::filesystem::path& path() const { return path_; }
    /// Of `name` in it, which may have folders of its own.
    [[nodiscard]] std::string path(const std::string& name) const {
        return (path_ / name).string();
    }
    /// The path of the file `name`, which has `content` from now on.
    std::string file(const std::string& name, const std::string& content) const {
        std::filesystem::create_directories((path_ / name).parent_path());
        std::ofstream{path_ / name, std::ios::binary} << content;
        return path(name);
    }

private:
    std::filesystem::path path_;
};

}  // namespace paceline::test
