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
        if (body && fresh) {
            updateRows(body, fresh);
        } else if (body || fresh) {
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

        function show() {
            button.textContent = paused ? button.dataset.resume : button.dataset.pause;
            if (paused) {
                status.textContent = status.dataset.paused;
            }
        }

        async function refresh() {
            if (paused || document.hidden) {
                return;
            }
            try {
                update(await fetchPage());
                const time = new Date().toLocaleTimeString(document.documentElement.lang);
                status.textContent = `${status.dataset.updated} ${time}`;
            } catch {
                status.textContent = status.dataset.failed;
            }
        }

        button.addEventListener("click", () => {
            paused = !paused;
            localStorage.setItem(PAUSED, paused ? "yes" : "no");
            show();
            refresh();
        });
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
