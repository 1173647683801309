#include "launch/load/search_plan.hpp"

#include <algorithm>
#include <filesystem>
#include <fmt/core.h>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include <spdlog/spdlog.h>

#include "launch/base/text_input.hpp"
#include "model/weights/unfinished_file.hpp"

namespace paceline {
namespace {

constexpr std::size_t kStateBytesMax = std::size_t{16} << 20U;

/// Replaces the state file as a whole: a concurrent reader sees the old content or the new one.
Status keep_state(const std::string& path, std::string_view state) {
    Result<UnfinishedFile> file = UnfinishedFile::begin(path, UnfinishedFile::Beside::Wait);
    if (!file) return file.error();
    if (Status written = file.value().append(std::as_bytes(std::span{state})); !written)
        return written;
    return file.value().keep();
}

/// SearchTrialOptions::save. Only the first failure is logged: a full disk usually stays full.
std::function<void(const std::string&)> saver(const std::string& path, std::string_view table) {
    return [path, table = std::string{table}, warned = false](const std::string& state) mutable {
        const Status kept = keep_state(path, state);
        if (kept.ok() || std::exchange(warned, true)) return;
        spdlog::warn(
            "{} state = {}: {}; the search goes on, and what it finds is lost if no later "
            "attempt succeeds",
            table, path, kept.error().what);
    };
}

/// Sets the save function, and restores the state of an earlier run if the file exists.
Status read_state(const std::string& path, std::string_view table, SearchTrialOptions& options) {
    if (path.empty()) return {};
    options.save = saver(path, table);
    if (!std::filesystem::exists(path)) return {};
    Result<std::string> text = read_file(path, kStateBytesMax);
    if (!text)
        return Error{text.error().code,
                     fmt::format("{} state = {}: {}", table, path, text.error().what)};
    if (Status fits = SkipSearch{options.search}.restore(text.value()); !fits.ok()) {
        return Error{Errc::BadFile, fmt::format("{} state = {}: {}; delete the file to search anew",
                                                table, path, fits.error().what)};
    }
    options.state = std::move(text).value();
    return {};
}

}  // namespace

Status check_state_kept(const SearchConfig& search, std::string_view table) {
    if (search.state.empty()) return {};
    // Opens and removes the temporary file of a save, whose name no other program uses.
    const Result<UnfinishedFile> part =
        UnfinishedFile::begin(search.state, UnfinishedFile::Beside::Refuse);
    // Another process is writing it, so the folder is writable.
    const bool in_use = !part.ok() && part.error().code == Errc::Cancelled;
    if (part.ok() || in_use) return {};
    return Error{Errc::BadArgument,
                 fmt::format("{} state: {}; name a file in a folder that can be written to", table,
                             part.error().what)};
}

Result<SearchTrialOptions> plan_search(const SkipConfig& skip,
                                       const SearchConfig& search,
                                       int layers,
                                       std::string_view table) {
    SearchTrialOptions options{.search = search.options,
                               .window = search.window,
                               .interval = skip.interval,
                               .optimise_share = search.optimise_share};
    options.search.layers = layers;
    options.search.ratio = skip.ratio;
    options.search.keep_first = skip.keep_first;
    options.search.keep_last = skip.keep_last;
    if (!SkipSearch{options.search}.has_choice()) {
        const int open = std::max(layers - skip.keep_first - skip.keep_last, 0);
        return Error{
            Errc::BadArgument,
            fmt::format(
                "{} skip_ratio = {}: of the {} sub-layers that may be skipped this is none or "
                "all, so there is nothing to search",
                table, skip.ratio, 2 * open)};
    }
    if (Status read = read_state(search.state, table, options); !read.ok()) return read.error();
    return options;
}

}  // namespace paceline
