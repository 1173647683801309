#include "actors/segment/rows/row_shares.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace paceline {
namespace {

constexpr std::uint32_t kOldestPart = 4;  // the oldest prompt gets one of so many rows

bool decodes(std::span<const RowClaim> claims) {
    return std::any_of(claims.begin(), claims.end(),
                       [](const RowClaim& one) { return !one.prompt && one.wanted > 0; });
}

/// `yielding`: also the rows that yield. Returns the room that is left.
std::uint32_t share_evenly(std::span<RowClaim> claims, std::uint32_t room, bool yielding) {
    for (bool any = true; any && room > 0;) {
        any = false;
        for (RowClaim& each : claims) {
            const std::uint32_t most = each.wanted - (yielding ? 0 : each.yields);
            if (room == 0 || each.prompt || each.granted >= most) continue;
            ++each.granted;
            --room;
            any = true;
        }
    }
    return room;
}

void grant(RowClaim& claim, std::uint32_t most, std::uint32_t& room) {
    const std::uint32_t rows = std::min({most, room, claim.wanted - claim.granted});
    claim.granted += rows;
    room -= rows;
}

void share_among_prompts(std::span<RowClaim> claims, std::uint32_t room) {
    std::vector<RowClaim*> prompts;
    for (RowClaim& each : claims) {
        if (each.prompt) prompts.push_back(&each);
    }
    if (prompts.empty()) return;
    RowClaim& oldest = **std::min_element(
        prompts.begin(), prompts.end(),
        [](const RowClaim* a, const RowClaim* b) { return a->arrived < b->arrived; });
    grant(oldest, (room + kOldestPart - 1) / kOldestPart, room);
    std::sort(prompts.begin(), prompts.end(), [](const RowClaim* a, const RowClaim* b) {
        return std::pair{a->left, a->arrived} < std::pair{b->left, b->arrived};
    });
    for (RowClaim* each : prompts) grant(*each, room, room);
}

}  // namespace

std::uint32_t verify_room(std::span<const RowClaim> claims, const RowLimits& limits) {
    std::uint32_t kept = 0;
    for (const RowClaim& each : claims) {
        if (each.prompt) kept = std::min(limits.prompts_least, kept + each.wanted);
    }
    return std::min(limits.verify_max, limits.batch - kept);
}

void share_rows(std::span<RowClaim> claims, const RowLimits& limits) {
    for (RowClaim& each : claims) each.granted = 0;
    if (!decodes(claims)) return share_among_prompts(claims, limits.batch);
    (void)share_evenly(claims, share_evenly(claims, verify_room(claims, limits), false), true);
    std::uint32_t verified = 0;
    for (const RowClaim& each : claims) verified += each.granted;
    const std::uint32_t more = limits.beside ? limits.beside(verified) : 0;
    share_among_prompts(claims,
                        std::min(limits.batch - verified, std::max(limits.prompts_least, more)));
}

}  // namespace paceline
