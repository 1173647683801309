#include "launch/base/cache_folders.hpp"

#include <algorithm>
#include <cctype>
#include <pwd.h>
#include <string_view>
#include <unistd.h>
#include <vector>

namespace paceline {
namespace {

std::optional<std::string> set_variable(const Variables& variables, const std::string& name) {
    std::optional<std::string> value = variables(name);
    if (value && value->empty()) value.reset();
    return value;
}

std::string path_below(std::string folder, std::string_view name) {
    if (!folder.ends_with('/')) folder += '/';
    return folder.append(name);
}

/// The home folder of the system's list of users; `user` empty: of the user of this process.
std::optional<std::string> listed_home(const std::string& user) {
    std::vector<char> text(16U << 10U);
    passwd entry{};
    passwd* found = nullptr;
    const int failed = user.empty()
                           ? ::getpwuid_r(::getuid(), &entry, text.data(), text.size(), &found)
                           : ::getpwnam_r(user.c_str(), &entry, text.data(), text.size(), &found);
    if (failed != 0 || found == nullptr) return std::nullopt;
    return std::string{entry.pw_dir};
}

std::optional<std::string> own_home(const Variables& variables) {
    std::optional<std::string> home = set_variable(variables, "HOME");
    return home ? home : listed_home("");
}

/// As Python's os.path.expanduser(): `~` and `~user` at the beginning; an unknown user stays as it
/// is.
std::string expand_user(const std::string& path, const Variables& variables) {
    if (!path.starts_with('~')) return path;
    const std::size_t end = std::min(path.find('/'), path.size());
    std::optional<std::string> home =
        end == 1 ? own_home(variables) : listed_home(path.substr(1, end - 1));
    if (!home) return path;
    while (home->ends_with('/')) home->pop_back();
    const std::string expanded = *home + path.substr(end);
    return expanded.empty() ? "/" : expanded;
}

bool is_word(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

/// As Python's os.path.expandvars(): `$NAME` and `${NAME}`; what is not set stays as it is.
std::string expand_variables(const std::string& path, const Variables& variables) {
    std::string expanded;
    for (std::size_t at = 0; at < path.size();) {
        std::size_t end = at + 1;
        std::string name;
        if (path[at] == '$' && end < path.size() && path[end] == '{') {
            const std::size_t close = path.find('}', end);
            if (close != path.npos) {
                name = path.substr(end + 1, close - end - 1);
                end = close + 1;
            }
        } else if (path[at] == '$') {
            while (end < path.size() && is_word(path[end])) ++end;
            name = path.substr(at + 1, end - at - 1);
        }
        const std::optional<std::string> value = name.empty() ? std::nullopt : variables(name);
        expanded += value ? *value : path.substr(at, end - at);
        at = end;
    }
    return expanded;
}

std::string expand(const std::string& path, const Variables& variables) {
    return expand_variables(expand_user(path, variables), variables);
}

std::string default_cache(const Variables& variables) {
    return path_below(expand_user("~", variables), ".cache");
}

}  // namespace

std::string hub_cache_folder(const Variables& variables) {
    for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
        if (const auto folder = set_variable(variables, name)) return expand(*folder, variables);
    }
    std::optional<std::string> home = set_variable(variables, "HF_HOME");
    if (!home) {
        const std::optional<std::string> cache = set_variable(variables, "XDG_CACHE_HOME");
        home = path_below(cache ? *cache : default_cache(variables), "huggingface");
    }
    return expand(path_below(expand(*home, variables), "hub"), variables);
}

std::string own_cache_folder(const Variables& variables) {
    std::optional<std::string> cache = set_variable(variables, "XDG_CACHE_HOME");
    if (!cache || !cache->starts_with('/')) cache = default_cache(variables);
    return cache->starts_with('/') ? path_below(*cache, "paceline") : std::string{};
}

}  // namespace paceline
