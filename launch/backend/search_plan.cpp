#include "launch/backend/search_plan.hpp"

#include <algorithm>
#include <filesystem>
#include <fmt/core.h>
#include <string>
#include <utility>

#include "launch/base/output_file.hpp"
#include "launch/base/text_input.hpp"

namespace paceline {
namespace {

constexpr std::size_t kStateBytesMax = std::size_t{16} << 20U;

/// Fails at the start of a run, not after hours of a search whose result cannot be kept.
Status check_writable(const std::string& path, std::string_view table) {
    const std::string probe = path + ".probe";
    Result<OutputFile> file = OutputFile::open(probe, fmt::format("{} state", table).c_str());
    if (!file) return file.error();
    std::error_code ignored;
    std::filesystem::remove(probe, ignored);
    return {};
}

/// What an earlier run has found, if there is such a file and it fits.
Status read_state(const std::string& path, std::string_view table, SearchTrialOptions& options) {
    if (path.empty()) return {};
    if (Status writable = check_writable(path, table); !writable.ok()) return writable;
    options.save = [path](const std::string& state) {
        (void)replace_file(path, state);  // a state that cannot be kept is searched again
    };
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

Result<SearchTrialOptions> plan_search(const SkipConfig& skip,
                                       const SearchConfig& search,
                                       int layers,
                                       std::string_view table) {
    SearchTrialOptions options{.search = {.layers = layers,
                                          .ratio = skip.ratio,
                                          .keep_first = skip.keep_first,
                                          .keep_last = skip.keep_last,
                                          .bayes_every = search.bayes_every,
                                          .trials_max = search.trials_max,
                                          .tolerance = search.tolerance,
                                          .matchness_stop = search.matchness_stop,
                                          .acceptance_min = search.acceptance_min},
                               .window = search.window,
                               .interval = skip.interval,
                               .optimise_share = search.optimise_share};
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
