// Which methods of configs/ can decode a model, and with which parts: trained ones that were found
// for it, or stand-ins. For `inspect`, `plan` and `--method auto`.
//
// Reads the parts' files; starts nothing. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/load/parts_search.hpp"
#include "launch/placement/pretrained.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

/// Which trained parts a method uses.
enum class PartsUse : std::uint8_t {
    None,      // it asks for no trained part
    Trained,   // for all that it asks for there is one
    StandIns,  // for some there is none: the text is the same, the speed is not
};

struct MethodFit {
    std::string_view name;
    PartsUse parts = PartsUse::None;
    std::string refusal = {};  // why it cannot decode this model; empty: it can
};

[[nodiscard]] PartsUse parts_use(const ResolvedConfig& pipeline, const Placement& placement);

/// Whether a configuration is made for a part of its own (EAGLE, Medusa, Kangaroo's adapter, REST's
/// datastore) that is not there: another method decodes in its place. `asked`: as written, before
/// use_parts(); `parts`: what that found.
[[nodiscard]] bool lacks_own_part(const PipelineConfig& asked, const UsedParts& parts);
/// The same of a method of configs/; also true if its part cannot be used.
[[nodiscard]] bool lacks_own_part(std::string_view method,
                                  const ModelFile& file,
                                  const PartsSearch& search);

/// The latter for each method that is asked about: MethodHistory::leave_out_if(). Borrows the file.
[[nodiscard]] std::function<bool(const std::string& method)> own_part_lacking(const ModelFile& file,
                                                                              PartsSearch search);

/// Of every method of methods(), in their order.
[[nodiscard]] std::vector<MethodFit> method_fits(const ModelFile& file, const PartsSearch& search);

/// The names of the methods with `parts` that fit, "a, b, c"; empty: none.
[[nodiscard]] std::string names_of(const std::vector<MethodFit>& fits, PartsUse parts);

}  // namespace paceline
