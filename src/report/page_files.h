// The files of src/report/page and docs/claims.md as text, put into the program by cmake/embed.cmake.
#pragma once

#include <string_view>

namespace unchain::report::files {

extern const std::string_view kPageHtml, kPageCss, kMeasuresJs, kThemeJs, kFiguresJs, kLimitsJs, kMapsJs, kNeedleJs,
    kStudyJs, kStudyClaimsJs, kStudyCurvesJs, kStudyLayersJs, kStudyPageJs, kCompareJs, kPageJs, kClaimsMd;

}  // namespace unchain::report::files
