// Where caches are looked for: by the rules of huggingface_hub and of the XDG base directory
// specification.
#include "launch/base/cache_folders.hpp"

#include <map>
#include <string>

#include <doctest/doctest.h>

namespace paceline {
namespace {

using Environment = std::map<std::string, std::string>;

Variables of(const Environment& environment) {
    return [environment](const std::string& name) -> std::optional<std::string> {
        const auto found = environment.find(name);
        return found == environment.end() ? std::nullopt : std::optional{found->second};
    };
}

std::string hub(Environment environment) {
    environment.emplace("HOME", "/home/me");
    return hub_cache_folder(of(environment));
}

std::string own(const Environment& environment) {
    return own_cache_folder(of(environment));
}

}  // namespace

TEST_CASE("the cache of the hub is named by the variables of its library, in their order") {
    CHECK(hub({}) == "/home/me/.cache/huggingface/hub");
    CHECK(hub({{"XDG_CACHE_HOME", "/c"}}) == "/c/huggingface/hub");
    CHECK(hub({{"XDG_CACHE_HOME", "/c"}, {"HF_HOME", "/h"}}) == "/h/hub");
    CHECK(hub({{"HF_HOME", "/h/"}}) == "/h/hub");
    CHECK(hub({{"HF_HOME", "/h"}, {"HUGGINGFACE_HUB_CACHE", "/old"}}) == "/old");
    CHECK(hub({{"HF_HUB_CACHE", "/new"}, {"HUGGINGFACE_HUB_CACHE", "/old"}}) == "/new");
    CHECK(hub({{"HF_HUB_CACHE", ""}, {"HF_HOME", "/h"}}) == "/h/hub");
    CHECK(hub({{"XDG_CACHE_HOME", "c"}}) == "c/huggingface/hub");  // the library takes it as it is
}

TEST_CASE("home folders and variables are expanded as Python does") {
    for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
        CHECK(hub({{name, "~/x"}}) == "/home/me/x");
        CHECK(hub({{name, "~"}}) == "/home/me");
        CHECK(hub({{name, "/a/~/b"}}) == "/a/~/b");
        CHECK(hub({{name, "$HOME/x"}}) == "/home/me/x");
        CHECK(hub({{name, "${HOME}x/$UNSET/$$/${UNSET}/${"}}) == "/home/mex/$UNSET/$$/${UNSET}/${");
        CHECK(hub({{name, "/a/$B_1-c"}, {"B_1", "$HOME"}}) == "/a/$HOME-c");
        CHECK(hub({{name, "~nobody-has-this-name/x"}}) == "~nobody-has-this-name/x");
        CHECK(hub({{name, "~/x"}, {"HOME", "/"}}) == "/x");
    }
    CHECK(hub({{"HF_HOME", "~/x"}}) == "/home/me/x/hub");
    CHECK(hub({{"HF_HOME", "$DATA/x"}, {"DATA", "/data"}}) == "/data/x/hub");
    CHECK(hub({{"XDG_CACHE_HOME", "~/c"}}) == "/home/me/c/huggingface/hub");
    CHECK(hub({{"HF_HOME", "~root"}}).starts_with("/"));  // of the list of users
}

TEST_CASE("Paceline's own cache is never below the working folder") {
    CHECK(own({{"HOME", "/home/me"}}) == "/home/me/.cache/paceline");
    CHECK(own({{"HOME", "/home/me"}, {"XDG_CACHE_HOME", "/c/"}}) == "/c/paceline");
    for (const char* relative : {"cache", "./cache", "", "~/cache", "../cache"})
        CHECK(own({{"HOME", "/home/me"}, {"XDG_CACHE_HOME", relative}}) ==
              "/home/me/.cache/paceline");
    CHECK(own({{"HOME", "here"}}).empty());
    CHECK(own({{"HOME", "here"}, {"XDG_CACHE_HOME", "/c"}}) == "/c/paceline");
    const std::string listed = own({});  // of the list of users, if this one is in it
    CHECK((listed.empty() || listed.starts_with("/")));
}

}  // namespace paceline
