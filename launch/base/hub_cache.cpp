#include "launch/base/hub_cache.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "model/weights/message_text.hpp"

namespace paceline {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kHubNameBytesMax = 96;  // of owner and of name, as on the hub
constexpr std::size_t kCommitBytesMax = 64;

bool is_word(std::string_view word) {
    const auto known = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '.' || c == '_' || c == '-';
    };
    return !word.empty() && word.size() <= kHubNameBytesMax && word[0] != '.' && word[0] != '-' &&
           word.find("--") == word.npos && std::all_of(word.begin(), word.end(), known);
}

/// The commit in refs/main; empty: none, or nothing like one.
std::string commit_of(const fs::path& model) {
    std::ifstream file(model / "refs" / "main");
    std::string commit;
    std::getline(file, commit);
    const bool plain = commit.size() <= kCommitBytesMax && is_word(commit);
    return plain ? commit : std::string{};
}

/// Whether `path`, whose links have been followed, lies below `folder`.
bool is_below(const fs::path& path, const fs::path& folder) {
    const auto [end, ignored] =
        std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
    return end == folder.end();
}

/// What the cache makes are links into the model's own folder.
Status check_links(const fs::path& snapshot, const fs::path& model) {
    std::error_code failed;
    const fs::path own = fs::canonical(model, failed);
    for (const fs::directory_entry& entry : fs::directory_iterator(snapshot, failed)) {
        if (failed) break;
        std::error_code broken;
        const fs::path target = fs::canonical(entry.path(), broken);
        if (!broken && is_below(target, own)) continue;
        return Error{Errc::BadFile, visible(entry.path().string(), kLineShownBytesMax) +
                                        " is a link that leads out of the model's folder or to "
                                        "nothing; fetch the model again"};
    }
    if (failed)
        return Error{Errc::BadFile, "cannot read " + snapshot.string() + ": " + failed.message()};
    return {};
}

}  // namespace

bool is_hub_name(const std::string& name) {
    const std::size_t slash = name.find('/');
    return slash != name.npos && is_word(std::string_view{name}.substr(0, slash)) &&
           is_word(std::string_view{name}.substr(slash + 1));
}

Result<std::optional<std::string>> find_in_hub(const std::string& hub, const std::string& name) {
    if (hub.empty() || !is_hub_name(name)) return std::optional<std::string>{};
    const std::size_t slash = name.find('/');
    const fs::path model =
        fs::path{hub} / ("models--" + name.substr(0, slash) + "--" + name.substr(slash + 1));
    std::error_code ignored;
    if (!fs::is_directory(model, ignored)) return std::optional<std::string>{};
    const std::string commit = commit_of(model);
    const fs::path snapshot = model / "snapshots" / commit;
    if (commit.empty() || !fs::is_directory(snapshot, ignored)) {
        return Error{Errc::BadFile,
                     model.string() +
                         " has no snapshot that its refs/main names; fetch the model "
                         "again, with hf download " +
                         name};
    }
    if (Status s = check_links(snapshot, model); !s) return s.error();
    return std::optional{snapshot.string()};
}

}  // namespace paceline
