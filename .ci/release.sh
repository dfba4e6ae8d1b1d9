#!/usr/bin/env bash
# Builds the sdist and, from it, a wheel into dist/; tries the wheel in clean environments; writes
# what it brings along (SBOM) and under which licences. Run by `make release`; uploads nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
bin="$PWD/.venv/bin" scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
rm -rf dist
"$bin/python" -m build --outdir dist .
wheel=$(echo "$PWD"/dist/*.whl)
"$bin/python" -m zipfile -l "$wheel" > "$scratch/files"
for needed in contextual_lqr/py.typed contextual_lqr/kernels/native contextual_lqr/kernels/reference.py \
  contextual_lqr/study/service/page/index.html contextual_lqr/study/service/page/uPlot-LICENSE; do
  grep -q "$needed" "$scratch/files" || { echo "no $needed in $wheel"; exit 1; }
done

echo "Without extras: the README's Python runs, and the command says what it lacks"
"${PYTHON:-python3}" -m venv "$scratch/plain"
"$scratch/plain/bin/pip" install -q "$wheel"
"$bin/python" - README.md > "$scratch/readme.py" <<'PY'
import re, sys
print(*re.findall(r"```python\n(.*?)```", open(sys.argv[1], encoding="utf-8").read(), re.S), sep="\n")
PY
(cd "$scratch" && plain/bin/python -W error readme.py)
if (cd "$scratch" && plain/bin/contextual-lqr info) 2> "$scratch/said"; then exit 1; fi
grep "pip install 'contextual-lqr\[cli\]'" "$scratch/said"

echo "With [cli]: the command runs"
"${PYTHON:-python3}" -m venv "$scratch/cli"
"$scratch/cli/bin/pip" install -q "$wheel[cli]"
(cd "$scratch" && cli/bin/contextual-lqr info && cli/bin/contextual-lqr new fleet.toml)

"$bin/cyclonedx-py" environment "$scratch/cli/bin/python" --output-reproducible \
  --short-PURLs --pyproject pyproject.toml --output-file dist/sbom.cdx.json
"$bin/pip-licenses" --python "$scratch/cli/bin/python" --format=markdown --with-urls \
  --output-file=dist/licences.md
(cd dist && sha256sum ./* > SHA256SUMS)
ls -l dist
