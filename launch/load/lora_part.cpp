#include "launch/load/lora_part.hpp"

#include <filesystem>
#include <system_error>

#include "launch/base/model_options.hpp"
#include "model/weights/fingerprint.hpp"
#include "model/weights/trained_parts.hpp"

namespace paceline {
namespace {

namespace fs = std::filesystem;

Result<std::string> in_named_folder(const std::string& folder, const ModelFile& target) {
    std::string path = (fs::path{folder} / kEarlyExitFile).string();
    const Result<PartCard> card = open_card(path);
    if (!card) return card.error();
    if (Status s = check_target(card.value(), path, target); !s) return s.error();
    return path;
}

}  // namespace

Result<std::string> find_lora(const std::string& option,
                              const PartsSearch& search,
                              const ModelFile& target) {
    if (option != kEarlyExit) return option;
    if (search.option == kNoParts) {
        return Error{Errc::BadArgument,
                     "--lora early-exit is a trained part, and --parts none excludes them; name "
                     "its file"};
    }
    if (!search.option.empty()) return in_named_folder(search.option, target);
    std::string omitted;
    for (const std::string& folder : search.folders) {
        std::string path = (fs::path{folder} / kEarlyExitFile).string();
        std::error_code ignored;
        if (!fs::exists(path, ignored)) continue;
        const Result<PartCard> card = open_card(path);
        if (card && check_target(card.value(), path, target).ok()) return path;
        omitted += "; " + (card ? path + " was made for the model with the fingerprint " +
                                      fingerprint_text(card.value().target)
                                : card.error().what);
    }
    std::string where;
    for (const std::string& folder : search.folders) where += (where.empty() ? "" : ", ") + folder;
    return Error{Errc::BadFile,
                 "--lora early-exit: there is no " + std::string{kEarlyExitFile} + " for " +
                     target.path() + " (fingerprint " + fingerprint_text(target.fingerprint()) +
                     ") in " + (where.empty() ? "any folder of trained parts" : where) + omitted};
}

}  // namespace paceline
