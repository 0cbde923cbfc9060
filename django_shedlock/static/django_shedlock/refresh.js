/* Refreshes the list of locks in place: filters, selection and focus stay. */
"use strict";
{
    const PAUSED = "django_shedlock.paused";

    function keyOf(row) {
        const box = row.querySelector("input.action-select");
        return box ? box.value : row.querySelector("th").textContent;
    }

    function hasFocus(element) {
        return element.contains(document.activeElement);
    }

    /* Cells are replaced one by one: the check box stays the very element that Django's
       own script knows, and nobody's focus is taken away. */
    function updateRow(row, fresh) {
        Array.from(row.children).forEach((cell, index) => {
            const next = fresh.children[index];
            if (cell.classList.contains("action-checkbox") || hasFocus(cell)) {
                return;
            }
            if (cell.innerHTML !== next.innerHTML) {
                cell.innerHTML = next.innerHTML;
            }
        });
    }

    function updateRows(body, fresh) {
        const known = new Map(Array.from(body.rows, (row) => [keyOf(row), row]));
        const rows = Array.from(fresh.rows, (row) => {
            const old = known.get(keyOf(row));
            if (!old) {
                return document.importNode(row, true);
            }
            updateRow(old, row);
            return old;
        });
        const same =
            rows.length === body.rows.length &&
            rows.every((row, index) => row === body.rows[index]);
        /* To move rows would take the focus from whoever is in one of them. */
        if (!same && !hasFocus(body)) {
            body.replaceChildren(...rows);
        }
    }

    function boxes() {
        return Array.from(document.querySelectorAll("#result_list input.action-select"));
    }

    /* Django's own script knows only the check boxes that came with the page. */
    function recount() {
        const counter = document.querySelector("span.action-counter");
        const all = document.getElementById("action-toggle");
        if (!counter || !all) {
            return;
        }
        const sel = boxes().filter((box) => box.checked).length;
        const cnt = Number(counter.dataset.actionsIcnt);
        const format = ngettext(
            "%(sel)s of %(cnt)s selected",
            "%(sel)s of %(cnt)s selected",
            sel,
        );
        counter.textContent = interpolate(format, {sel, cnt}, true);
        all.checked = sel > 0 && sel === boxes().length;
    }

    function selectAll(checked) {
        for (const box of boxes()) {
            box.checked = checked;
            box.closest("tr").classList.toggle("selected", checked);
        }
    }

    function onChange(event) {
        if (event.target.id === "action-toggle") {
            selectAll(event.target.checked);
        }
        recount();
    }

    function updateCounter(page) {
        const counter = document.querySelector("span.action-counter");
        const fresh = page.querySelector("span.action-counter");
        if (counter && fresh) {
            counter.dataset.actionsIcnt = fresh.dataset.actionsIcnt;
        }
        recount();
    }

    function isTyping() {
        const search = document.getElementById("searchbar");
        return search !== null && search.value !== search.defaultValue;
    }

    function update(page) {
        const counts = document.getElementById("shedlock-counts");
        const freshCounts = page.getElementById("shedlock-counts");
        if (!freshCounts) {
            throw new Error("not the list of locks");
        }
        if (!hasFocus(counts)) {
            counts.innerHTML = freshCounts.innerHTML;
        }
        const body = document.querySelector("#result_list tbody");
        const fresh = page.querySelector("#result_list tbody");
        if (body) {
            updateRows(body, fresh || document.createElement("tbody"));
            updateCounter(page);
        } else if (fresh && !isTyping()) {
            window.location.reload();
        }
    }

    async function fetchPage() {
        const response = await fetch(window.location.href, {
            credentials: "same-origin",
            cache: "no-store",
        });
        if (!response.ok || response.redirected) {
            throw new Error(`status ${response.status}`);
        }
        return new DOMParser().parseFromString(await response.text(), "text/html");
    }

    function start(overview) {
        const line = overview.querySelector(".shedlock-refresh");
        const status = line.querySelector("[data-shedlock-status]");
        const button = line.querySelector("button");
        let paused = localStorage.getItem(PAUSED) === "yes";
        let waiting = false;

        function show() {
            button.textContent = paused ? button.dataset.resume : button.dataset.pause;
            if (paused) {
                status.textContent = status.dataset.paused;
            }
        }

        async function refresh() {
            if (paused || waiting || document.hidden) {
                return;
            }
            waiting = true;
            try {
                const page = await fetchPage();
                if (paused) {
                    return;
                }
                update(page);
                const time = new Date().toLocaleTimeString(document.documentElement.lang);
                status.removeAttribute("role");
                status.textContent = `${status.dataset.updated} ${time}`;
            } catch {
                if (!paused) {
                    status.setAttribute("role", "alert");
                    status.textContent = status.dataset.failed;
                }
            } finally {
                waiting = false;
            }
        }

        button.addEventListener("click", () => {
            paused = !paused;
            localStorage.setItem(PAUSED, paused ? "yes" : "no");
            show();
            refresh();
        });
        const list = document.getElementById("result_list");
        if (list) {
            list.addEventListener("change", onChange);
        }
        line.hidden = false;
        show();
        window.setInterval(refresh, Number(overview.dataset.shedlockRefresh) * 1000);
    }

    document.addEventListener("DOMContentLoaded", () => {
        const overview = document.querySelector("[data-shedlock-refresh]");
        if (overview) {
            start(overview);
        }
    });
}
