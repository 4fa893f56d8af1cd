# On a fresh machine, `make demo` and `make test` also install everything they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test extra soak lint bench docs results-check dist lowest clean

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev,docs]'
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/perdure demo --out demo

test: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -n 2 -m 'not slow and not extra'

extra: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -n 2 -m 'extra and not slow'

soak: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -n 2 -m slow
	$(BIN)/python benchmarks/reliability.py --page docs/results/reliability.md

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/run_comparisons.py $(ARGS)

results-check: $(STAMP)
	$(BIN)/python tools/results_check.py

docs: $(STAMP) demo/report.html
	$(BIN)/python tools/screenshots.py demo/report.html docs/images
	$(BIN)/python tools/gallery.py demo docs
	$(BIN)/python tools/concept_pictures.py docs
	$(BIN)/python tools/glossary_page.py docs/glossary.md
	$(BIN)/python tools/api_pages.py docs/api
	OMP_NUM_THREADS=1 $(BIN)/python tools/notebook_pages.py docs/notebooks
	$(BIN)/mkdocs build --strict

demo/report.html: | $(STAMP)
	$(BIN)/perdure demo --out demo

# Both distributions, checked, and each tried in a new environment (about five minutes, and 1 GB in a temporary folder).
dist: $(STAMP)
	rm -rf dist
	$(BIN)/python -m hatchling build -d dist
	$(BIN)/python tools/check_dist.py dist

# The tests with the lowest supported versions of all dependencies but torch. ARGS are given to pytest.
lowest:
	$(PYTHON) tools/lowest.py .venv-lowest $(ARGS)

clean:
	rm -rf $(VENV) .venv-lowest demo site build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
